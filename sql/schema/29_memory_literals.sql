-- What keeps two texts of similar vectors apart (20_memories.sql): figures, negations, and words that vectors hardly tell from their
-- opposites. The list of those words is here alone.

CREATE FUNCTION recall.literals_v1(p_content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- What vectors do not tell apart: figures with their signs; negations; whatever is not Latin script or punctuation, of which the default
-- encoder knows some letters and no words; and words of English that stand for a direction (more or less), a number, a day or month, or
-- a "may". In their order, directions after all others, as "up 4 %" is "a 4 % rise".
--
-- Directions are listed by their stems, in roughly the order of pairs. Which side is which does not matter, as long as synonyms are on
-- one: "over 4 %" and "more than 4 %". Of a pair one word is enough, so that "export" stands here without "import", which is the stem of
-- "important" too.
SELECT ARRAY(
    SELECT l.literal FROM regexp_matches(
        p_content,
        '((?:(?<![[:alnum:]])[-+])?[0-9]+(?:[.,][0-9]+)*|[^\u0001-\u02ff\u2000-\u206f]+'
        '|\m[a-z]+(?:[''\u2019]t)?\M)', 'gi') WITH ORDINALITY AS f (found, nth)
    CROSS JOIN LATERAL (
        -- The dictionary has no stem for words such as "up", which it leaves out of texts.
        SELECT lower(f.found[1]) AS word, coalesce((ts_lexize('english_stem', f.found[1]))[1], lower(f.found[1])) AS stem) AS w
    CROSS JOIN LATERAL (SELECT CASE
        WHEN w.word !~ '^[a-z]' THEN f.found[1]
        WHEN w.word ~ '^(?:no|not|never|none|nor|cannot|without|.*n[''\u2019]t)$' THEN 'not'
        WHEN w.stem = ANY ('{
        up, upward, upsid, over, above, more, most, high, higher, highest, top, peak, maximum, rise, rose, risen, increas, rais,
        hike, gain, grow, grew, grown, growth, climb, jump, surg, soar, ralli, advanc, acceler, faster, fast, expand, expans, widen,
        wide, wider, doubl, strengthen, strong, stronger, heavi, heavier, larg, larger, big, bigger, surplus, upgrad, inflow,
        outperform, overvalu, overbought, overweight, oversuppli, expens, profit, bullish, bull, hawkish, optimist, good, better,
        best, improv, tight, tighten, tighter, long, longer, buy, bought, buyer, purchas, lend, lent, lender, creditor, lead, enter,
        accept, approv, allow, agre, support, confirm, beat, exceed, win, won, pass, open, start, begin, began, begun, resum, after,
        late, later, last}'::text[]) THEN 'more'
        WHEN w.stem = ANY ('{
        down, downward, downsid, under, below, less, fewer, least, low, lower, lowest, bottom, trough, minimum, fall, fell, fallen,
        decreas, cut, reduc, reduct, lose, lost, loss, shrink, shrank, shrunk, drop, declin, plung, plummet, slump, tumbl, sink, sank,
        crash, retreat, deceler, slow, slower, narrow, narrower, halv, weak, weaken, weaker, light, lighter, small, smaller, scarc,
        shortag, downgrad, outflow, underperform, undervalu, oversold, underweight, cheap, cheaper, bearish, bear, dovish,
        pessimist, negat, bad, wors, worst, worsen, deterior, loos, loosen, looser, eas, short, shorter, sell, sold, seller, borrow,
        debtor, lag, trail, exit, leav, left, reject, deni, block, forbid, disagre, oppos, against, cancel, miss, fail, failur,
        close, shut, end, stop, halt, suspend, before, earli, earlier, first, export, exclud, dislik, unlik, imposs, fals, wrong,
        differ, partial, riski}'::text[]) THEN 'less'
        WHEN w.word = ANY ('{
        one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, twenty, thirty, forty, fifty, sixty, seventy,
        eighty, ninety, hundred, thousand, million, billion, trillion, second, third, fourth, half, quarter, once, twice, dozen,
        all, some, daily, weekly, monthly, quarterly, yearly, annual, may, might, could, perhaps, january, february, march, april,
        june, july, august, september, october, november, december, monday, tuesday, wednesday, thursday, friday, saturday, sunday,
        north, south, east, west}'::text[]) THEN w.word
        END AS literal) AS l
    WHERE l.literal IS NOT NULL ORDER BY l.literal IN ('more', 'less'), f.nth)
$$;

CREATE FUNCTION recall.may_say_the_same_v1(p_one text, p_other text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- Whether two texts of similar vectors may be one memory. Not where one is longer than what encoders read of it, as they may differ in the
-- rest: the default one reads 256 tokens, some 1,000 letters of English, and of many scripts a letter each. Not where their literals
-- differ, and not where they are made of the same three and more words in another order: "A gains from B" and "B gains from A".
SELECT octet_length(p_one) <= 500 AND octet_length(p_other) <= 500 AND recall.literals_v1(p_one) = recall.literals_v1(p_other)
    AND (cardinality(w.ones) < 3 OR w.ones = w.others OR strip(to_tsvector('english', p_one)) <> strip(to_tsvector('english', p_other)))
FROM (SELECT
    ARRAY(SELECT l.lexeme FROM unnest(to_tsvector('english', p_one)) AS l ORDER BY l.positions[1]) AS ones,
    ARRAY(SELECT l.lexeme FROM unnest(to_tsvector('english', p_other)) AS l ORDER BY l.positions[1]) AS others) AS w
$$;
