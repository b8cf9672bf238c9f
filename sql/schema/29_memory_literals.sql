-- What keeps two texts of similar vectors apart (20_memories.sql): figures, units, negations, names, opposites, function words, and how
-- little of a long text differs. The lists of words that vectors hardly tell apart are here alone. In doubt, two texts are two memories.

CREATE FUNCTION recall.literals_v1(p_content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- What vectors do not tell apart: figures with their signs; negations; whatever is not Latin script or punctuation, of which the default
-- encoder knows some letters and no words; and words of English that stand for a direction (more or less), a number, a unit, a day or
-- month, or a "may". Words such as "on" are names where they are written in capitals, as the tickers NOW and ON are. In their order,
-- directions after all others, as "up 4 %" is "a 4 % rise".
--
-- Directions are listed by their stems, in roughly the order of pairs. Which side is which does not matter, as long as synonyms are on
-- one: "over 4 %" and "more than 4 %". Of a pair one word is enough, so that "export" stands here without "import", which is the stem of
-- "important" too.
SELECT ARRAY(
    SELECT l.literal FROM regexp_matches(
        p_content,
        '((?:(?<![[:alnum:]])[-+])?[0-9]+(?:[.,][0-9]+)*|[$%£¥]|[^\u0001-\u02ff\u2000-\u206f]+'
        '|\m[a-z]+(?:[''\u2019]t)?\M)', 'gi') WITH ORDINALITY AS f (found, nth)
    CROSS JOIN LATERAL (
        -- The dictionary has no stem for words such as "up", which it leaves out of texts.
        SELECT lower(f.found[1]) AS word, coalesce((ts_lexize('english_stem', f.found[1]))[1], lower(f.found[1])) AS stem) AS w
    CROSS JOIN LATERAL (SELECT CASE
        WHEN w.word !~ '^[a-z]' THEN f.found[1]
        WHEN w.word ~ '^(?:no|not|never|none|nor|non|neither|nobody|nothing|nowhere|hardly|barely|scarcely|seldom|rarely|cannot|without|.*n[''\u2019]t)$'
            THEN 'not'
        WHEN w.stem = ANY ('{percent, pct}'::text[]) THEN '%'
        WHEN w.stem = ANY ('{dollar, usd}'::text[]) THEN '$'
        WHEN w.stem = ANY ('{euro, eur}'::text[]) THEN '€'
        WHEN w.stem = ANY ('{
        cent, pound, gbp, sterl, yen, jpi, yuan, cni, renminbi, franc, chf, rupe, inr, krona, peso, bitcoin, percentag, point, basi, bp, mile, yard, foot,
        feet, inch, metr, meter, kilometr, kilomet, km, hectar, acr, gram, kilogram, kilo, kg, ounc, ton, tonn, barrel, gallon, litr,
        liter, hour, minut, day, week, month, year, decad, celsius, fahrenheit, watt, kilowatt, megawatt, gigawatt, kw, mw, gw, byte, megabyt,
        gigabyt, terabyt, mb, gb, tb, nanomet, nanometr}'::text[]) THEN w.stem
        WHEN w.stem = ANY ('{
        up, upward, upsid, over, above, more, most, high, higher, highest, top, peak, maximum, rise, rose, risen, increas, rais,
        hike, gain, grow, grew, grown, growth, climb, jump, surg, soar, ralli, advanc, acceler, faster, fast, expand, expans, widen,
        wide, wider, doubl, strengthen, strong, stronger, heavi, heavier, larg, larger, big, bigger, surplus, upgrad, inflow,
        outperform, overvalu, overbought, overweight, oversuppli, expens, profit, bullish, bull, hawkish, optimist, good, better,
        best, improv, tight, tighten, tighter, long, longer, buy, bought, buyer, purchas, lend, lent, lender, creditor, lead, enter,
        accept, approv, allow, agre, support, confirm, beat, exceed, win, won, pass, open, start, begin, began, begun, resum, after,
        late, later, last, gross, guilti, hire, hot, warm, rich, new, newer, young, younger, public, perman, aliv, born, hard, deep,
        front, increment, major, senior, victori}'::text[]) THEN 'more'
        WHEN w.stem = ANY ('{
        down, downward, downsid, under, below, less, fewer, least, low, lower, lowest, bottom, trough, minimum, fall, fell, fallen,
        decreas, cut, reduc, reduct, lose, lost, loss, shrink, shrank, shrunk, drop, declin, plung, plummet, slump, tumbl, sink, sank,
        crash, retreat, deceler, slow, slower, narrow, narrower, halv, weak, weaken, weaker, light, lighter, small, smaller, scarc,
        shortag, downgrad, outflow, underperform, undervalu, oversold, underweight, cheap, cheaper, bearish, bear, dovish,
        pessimist, negat, bad, wors, worst, worsen, deterior, loos, loosen, looser, eas, short, shorter, sell, sold, seller, borrow,
        debtor, lag, trail, exit, leav, left, reject, deni, block, forbid, disagre, oppos, against, cancel, miss, fail, failur,
        close, shut, end, stop, halt, suspend, before, earli, earlier, first, export, exclud, dislik, unlik, imposs, fals, wrong,
        differ, partial, riski, danger, dead, bankrupt, insolv, poor, enemi, temporari, fake}'::text[]) THEN 'less'
        WHEN w.word = ANY ('{
        one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, twenty, thirty, forty, fifty, sixty, seventy,
        eighty, ninety, hundred, thousand, million, billion, trillion, second, third, fourth, half, quarter, once, twice, dozen,
        all, some, from, or, if, unless, except, only, should, must, can, he, she, him, her, his, we, they, daily, weekly, monthly, quarterly, yearly, annual, may, might, could, perhaps, january, february, march, april,
        june, july, august, september, october, november, december, monday, tuesday, wednesday, thursday, friday, saturday, sunday,
        north, south, east, west}'::text[]) THEN w.word
        WHEN f.found[1] ~ '^[[:upper:]]{2,}$' AND ts_lexize('english_stem', f.found[1]) = '{}' THEN f.found[1]
        END AS literal) AS l
    WHERE l.literal IS NOT NULL ORDER BY l.literal IN ('more', 'less'), f.nth)
$$;

CREATE FUNCTION recall.content_words_v1(p_content text) RETURNS TABLE (word text, stem text, is_name boolean, times bigint)
LANGUAGE sql IMMUTABLE STRICT SET search_path = recall, pg_catalog, pg_temp
AS $$
-- The words of a text, in lower case, that are neither literals nor words such as "the". is_name: it has a capital letter; of a word that
-- begins a sentence, it also stands in its basic form, as "Micron" does and "Prefers" does not. times: how often its stem is there.
SELECT lower(f.found[2]), s.stems[1], bool_or(f.found[2] ~ '[[:upper:]]' AND (f.found[1] IS NULL OR s.stems[1] = lower(f.found[2]))),
    sum(count(*)) OVER (PARTITION BY s.stems[1])
FROM regexp_matches(p_content, '(^[^[:alnum:]]*|[.!?:;\n][^[:alnum:]]+)?\m([[:alpha:]][[:alnum:]&]*)', 'g') AS f (found)
CROSS JOIN LATERAL (SELECT ts_lexize('english_stem', lower(f.found[2])) AS stems) AS s
WHERE s.stems <> '{}' AND literals_v1(f.found[2]) = '{}' GROUP BY 1, 2
$$;

CREATE FUNCTION recall.function_words_v1(p_content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = recall, pg_catalog, pg_temp
AS $$
-- The words that content_words_v1 leaves out and that change what a text says, in lower case and in their order: "on" and "off", "my" and
-- "your". Those of the past are one: 'past'. Left out are literals, and words that another of them, or none, often stands for.
WITH stop_word AS MATERIALIZED (
    SELECT f.found[1] AS token, lower(f.found[1]) AS word, f.nth
    FROM regexp_matches(p_content, '\m[a-z]+(?:[''\u2019]t)?\M', 'gi') WITH ORDINALITY AS f (found, nth)
    WHERE ts_lexize('english_stem', f.found[1]) = '{}' AND lower(f.found[1]) <> ALL ('{
        a, an, the, this, that, these, those, which, who, whom, am, is, are, be, been, being, has, have, having, do, does, doing, and,
        but, of, at, for, s, t, don}'::text[])
)
SELECT ARRAY(
    SELECT CASE WHEN w.word IN ('was', 'were', 'had', 'did') THEN 'past' ELSE w.word END FROM stop_word AS w
    WHERE w.token IN (SELECT u.token FROM (SELECT DISTINCT o.token FROM stop_word AS o) AS u WHERE literals_v1(u.token) = '{}')
    ORDER BY w.nth)
$$;

CREATE FUNCTION recall.units_v1(p_content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- What the figures of a text count: the word after each, in its order, by its stem; NULL where that is a word such as "in". And where
-- something comes from or by whom it is done, as "sued" and "sued by" differ in a word that is in no vector.
SELECT ARRAY(
    SELECT (ts_lexize('english_stem', lower(f.found[1])))[1] FROM regexp_matches(
        p_content,
        '(?:[0-9]|\m(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety'
        '|hundred|thousand|million|billion|trillion|from|by)\M)[^[:alnum:].,;:!?%]*([[:alpha:]]+)', 'gi') WITH ORDINALITY AS f (found, nth)
    -- A literal, as "%" is.
    WHERE lower(f.found[1]) NOT IN ('percent', 'pct') ORDER BY f.nth)
$$;

CREATE FUNCTION recall.are_opposites_v1(p_one text, p_other text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$
-- Whether two words differ in how they begin alone, as "reliable" and "unreliable" or "inflow" and "outflow" do, or in "-ful" and "-less".
SELECT w.one <> w.other AND (
    length(w.one) >= 2 AND right(w.other, length(w.one)) = w.one OR length(w.other) >= 2 AND right(w.one, length(w.other)) = w.other
    OR w.one ~ 'less' <> (w.other ~ 'less')
        AND regexp_replace(w.one, '(?:ful|less)(?:ly|ness)?$', '') = regexp_replace(w.other, '(?:ful|less)(?:ly|ness)?$', '')
    OR right(w.one, n.ending) = right(w.other, n.ending))
FROM (SELECT lower(p_one) AS one, lower(p_other) AS other) AS w
CROSS JOIN LATERAL (SELECT greatest(4, (greatest(length(w.one), length(w.other)) + 1) / 2) AS ending) AS n
$$;

CREATE FUNCTION recall.difference_similarity_v1(p_one text, p_other text, p_similarity double precision) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = recall, pg_catalog, pg_temp
AS $$
-- How similar what differs in two texts is, whose vectors are p_similarity similar: the less of both differs, the more similar are their
-- vectors whatever it says. NULL where they are two memories:
--   one is longer than what encoders read of it, as they may differ in the rest: the default one reads 256 tokens, some 1,000 letters of
--     English, and of many scripts a letter each;
--   their literals or the units of their figures differ, a name is in one of them alone, or two of their words are opposites;
--   each has a function word that the other lacks, or they differ in these alone, and in whether they speak of the past or in the order;
--   they are made of the same three and more words in another order: "A gains from B" and "B gains from A";
--   in more than eight words, one stands for another: a vector of as many does not say whether that means the same.
DECLARE
    v_words integer;
    v_ones text[];
    v_others text[];
    v_one_function text[];
    v_other_function text[];
    v_only_one text[];
    v_only_other text[];
BEGIN
    IF octet_length(p_one) > 500 OR octet_length(p_other) > 500 OR literals_v1(p_one) <> literals_v1(p_other)
       OR units_v1(p_one) IS DISTINCT FROM units_v1(p_other) THEN
        RETURN NULL;
    END IF;
    -- Of "hasn't" the parser makes the words "hasn" and "t".
    p_one := regexp_replace(p_one, '\m(is|are|was|were|has|have|had|do|does|did)n[''\u2019]t\M', '\1 not', 'gi');
    p_other := regexp_replace(p_other, '\m(is|are|was|were|has|have|had|do|does|did)n[''\u2019]t\M', '\1 not', 'gi');
    v_one_function := function_words_v1(p_one);
    v_other_function := function_words_v1(p_other);
    v_only_one := ARRAY(SELECT unnest(v_one_function) EXCEPT SELECT unnest(v_other_function));
    v_only_other := ARRAY(SELECT unnest(v_other_function) EXCEPT SELECT unnest(v_one_function));
    IF v_only_one <> '{}' AND v_only_other <> '{}' THEN
        RETURN NULL;
    END IF;
    v_ones := ARRAY(SELECT l.lexeme FROM unnest(to_tsvector('english', p_one)) AS l CROSS JOIN unnest(l.positions) AS n (nth) ORDER BY n.nth);
    v_others := ARRAY(SELECT l.lexeme FROM unnest(to_tsvector('english', p_other)) AS l CROSS JOIN unnest(l.positions) AS n (nth) ORDER BY n.nth);
    IF v_ones @> v_others AND v_others @> v_ones AND cardinality(v_ones) = cardinality(v_others) THEN
        IF 'past' = ANY (v_only_one || v_only_other)
           OR cardinality(v_one_function) = cardinality(v_other_function) AND v_one_function <> v_other_function THEN
            RETURN NULL;
        END IF;
        RETURN CASE WHEN cardinality(v_ones) < 3 OR v_ones = v_others THEN p_similarity END;
    END IF;
    WITH one AS MATERIALIZED (SELECT * FROM content_words_v1(p_one)), other AS MATERIALIZED (SELECT * FROM content_words_v1(p_other)),
    only_one AS MATERIALIZED (SELECT o.* FROM one AS o WHERE NOT EXISTS (SELECT FROM other AS x WHERE x.stem = o.stem AND x.times >= o.times)),
    only_other AS MATERIALIZED (SELECT o.* FROM other AS o WHERE NOT EXISTS (SELECT FROM one AS x WHERE x.stem = o.stem AND x.times >= o.times))
    SELECT (SELECT count(*) FROM (SELECT o.stem FROM one AS o UNION SELECT o.stem FROM other AS o) AS u),
        ARRAY(SELECT DISTINCT o.stem FROM only_one AS o), ARRAY(SELECT DISTINCT o.stem FROM only_other AS o)
    INTO v_words, v_ones, v_others
    WHERE NOT EXISTS (SELECT FROM only_one AS o WHERE o.is_name) AND NOT EXISTS (SELECT FROM only_other AS o WHERE o.is_name)
      AND NOT EXISTS (SELECT FROM only_one AS o CROSS JOIN only_other AS x
                      WHERE are_opposites_v1(o.word, x.word) OR are_opposites_v1(o.stem, x.stem));
    IF v_words IS NULL OR v_words > 8 AND v_ones <> '{}' AND v_others <> '{}' THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN v_ones = '{}' AND v_others = '{}' THEN p_similarity
        ELSE 1 - (1 - p_similarity) * v_words / (cardinality(v_ones) + cardinality(v_others)) END;
END
$$;

CREATE FUNCTION recall.may_say_the_same_v1(p_one text, p_other text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT SET search_path = recall, pg_catalog, pg_temp
AS $$
-- Whether two texts of similar vectors may be one memory; see recall.difference_similarity_v1.
SELECT difference_similarity_v1(p_one, p_other, 1) IS NOT NULL
$$;
