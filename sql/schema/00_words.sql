-- Words: how texts and queries become what is searched by words, and how names are compared. Functions of text alone, of which later
-- files make columns and indexes; they depend on no table.
--
-- Words of Latin letters are stemmed as English, those of other alphabets by the stemmer of a language that is written so. Scripts
-- without blanks between words, and Korean, whose words have their particles attached, become pairs of characters. Marks above and below
-- Latin, Greek, Arabic and Hebrew letters do not count, so that words are found with and without them.

CREATE FUNCTION imem_plain_v1(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
-- A text in small letters, without accents and invisible characters, with one blank where there were several: what two spellings of a name
-- have in common. Marks that make another letter of one stay: those of Cyrillic, Japanese and Indian letters.
DECLARE
    v_text text := p_text;
BEGIN
    IF octet_length(v_text) > length(v_text) THEN
        -- Format characters, fillers and variation selectors are not seen.
        v_text := regexp_replace(v_text,
            '[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0'
            '\ufff9-\ufffb\U000e0000-\U000e0fff]+', '', 'g');
        -- What NFKD would make letters and figures of. Apostrophes and hyphens have ASCII's meaning.
        v_text := translate(v_text, U&'\2026\2122\00a9\00ae\00b2\00b3\00b9\2018\2019\02bc\2032\2010\2011', U&'       ''''''''--');
        v_text := normalize(v_text, NFKD);
        IF v_text ~ '[\u0300-\u036f]' THEN
            v_text := regexp_replace(v_text, '([A-Za-z\u0370-\u03ff])[\u0300-\u036f]+', '\1', 'g');
        END IF;
        IF octet_length(v_text) > length(v_text) THEN
            -- Arabic vowels and the stretching line, and Hebrew points.
            v_text := regexp_replace(v_text, '[\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]+', '', 'g');
            v_text := lower(normalize(v_text, NFC));
            -- Letters that no mark is taken from, capitals that lower() of an ASCII collation leaves, Persian letters and figures.
            IF v_text ~ '[\u00c0-\u017f\u0192\u0370-\u06ff\u1e9e]' THEN
                v_text := translate(v_text,
                    'ØøŁłĐđÐðıĦħŦŧŊŋĸſƒΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩςАБВГДЕЁЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЄІЇҐЎЂЈЉЊЋЏё'
                    'کیى٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹',
                    'oollddddihhttnnksfαβγδεζηθικλμνξοπρστυφχψωσабвгдеежзийклмнопрстуфхцчшщъыьэюяєіїґўђјљњћџе'
                    'كيي01234567890123456789');
                v_text := replace(replace(replace(replace(replace(replace(replace(replace(v_text,
                    'ß', 'ss'), 'ẞ', 'ss'), 'æ', 'ae'), 'Æ', 'ae'), 'œ', 'oe'), 'Œ', 'oe'), 'þ', 'th'), 'Þ', 'th');
            END IF;
            -- Marks and signs beyond ASCII separate words, as those of ASCII do. A currency's sign and a picture stand by themselves.
            v_text := regexp_replace(v_text, '[\u0080-\u00a0\u00a1\u00a6-\u00a8\u00ab\u00ac\u00af\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7'
                '\u037e\u0387\u055a-\u055f\u0589\u058a\u05be\u05c0\u05c3\u05c6\u05f3\u05f4\u060c\u060d\u061b-\u061f\u066a-\u066d\u06d4'
                '\u0964\u0965\u0e2f\u0e4f\u0e5a\u0e5b\u0f04-\u0f14\u104a-\u104f\u1361-\u1368\u17d4-\u17da\u2000-\u200a\u2012-\u2029'
                '\u202f-\u205f\u2190-\u25ff\u2e00-\u2e5d\u3000-\u3004\u3008-\u303f\u30a0\u30fb\ufd3e\ufd3f\ufe10-\ufe6f\uff01-\uff0f'
                '\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+', ' ', 'g');
            v_text := regexp_replace(v_text, '([\u00a2-\u00a5\u20a0-\u20cf\u2600-\u27bf\U0001f000-\U0001faff])', ' \1 ', 'g');
        END IF;
    END IF;
    RETURN btrim(regexp_replace(regexp_replace(lower(v_text), '[\u0001-\u0008\u000e-\u001b\u007f]+', '', 'g'), '\s+', ' ', 'g'));
END
$$;

CREATE FUNCTION imem_paired_v1() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
-- The characters that are searched by pairs, as the inside of a bracket of a regular expression: Chinese, Japanese, Korean, Thai, Lao,
-- Burmese, Khmer, Tibetan.
SELECT '\u0e01-\u0e2e\u0e30-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u0f18-\u0f19\u0f35-\u0fbc\u1000-\u1049\u1050-\u109f\u1100-\u11ff\u1780-\u17d3\u17dc\u17dd'
    '\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff'
    '\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff\U00020000-\U0003ffff'
$$;

CREATE FUNCTION imem_runs_v1(p_plain text) RETURNS SETOF text[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
AS $$
-- The runs of characters that are searched by pairs, in their order: of each run its characters, with the marks that belong to them.
-- p_plain: see imem_plain_v1.
DECLARE
    v_run text;
BEGIN
    FOR v_run IN
        SELECT m[1] FROM regexp_matches(p_plain, '[' || public.imem_paired_v1() || ']+', 'g') AS m
    LOOP
        RETURN NEXT ARRAY(SELECT m[1] FROM regexp_matches(v_run,
            '.[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd\u0f35\u0f37\u0f39\u0f71-\u0fbc\u102b-\u103e\u1056-\u1059'
            '\u105e-\u1060\u17b6-\u17d3\u17dd\u3099\u309a]*', 'g') AS m);
    END LOOP;
END
$$;

CREATE FUNCTION imem_alphabets_v1(p_plain text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
-- The words of a text but for those that are searched by pairs. p_plain: see imem_plain_v1. Arabic "and", "so", "by" and "like" are
-- written with the article after them as one word, from which the stemmer would take neither.
DECLARE
    v_words tsvector := to_tsvector('english', regexp_replace(
        p_plain, '[\u0370-\u052f\u0531-\u0587\u0600-\u06ff\u0750-\u077f\u0900-\u097f\u0b80-\u0bff\u1f00-\u1fff' || public.imem_paired_v1() || ']+', ' ', 'g'));
    v_alphabet record;
BEGIN
    FOR v_alphabet IN
        SELECT a.configuration::regconfig AS configuration, '[^' || a.letters || ']+' AS others FROM (VALUES
            ('greek', '\u0370-\u03ff\u1f00-\u1fff'), ('russian', '\u0400-\u052f'), ('armenian', '\u0531-\u0587'),
            ('arabic', '\u0600-\u06ff\u0750-\u077f'), ('hindi', '\u0900-\u097f'), ('tamil', '\u0b80-\u0bff')) AS a (configuration, letters)
        WHERE p_plain ~ ('[' || a.letters || ']')
    LOOP
        v_words := v_words || to_tsvector(v_alphabet.configuration, regexp_replace(
            regexp_replace(p_plain, v_alphabet.others, ' ', 'g'), '(^| )[\u0648\u0641\u0628\u0643](?=\u0627\u0644..)', '\1', 'g'));
    END LOOP;
    RETURN v_words;
END
$$;

CREATE FUNCTION imem_words_v1(p_text text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = public, pg_temp
AS $$
-- The words by which a text is found. Of a run of characters without blanks each two that follow one another, and the last one, so that
-- every single one begins a word.
DECLARE
    v_plain text;
    v_words tsvector;
    v_run text[];
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN to_tsvector('pg_catalog.english', p_text);
    END IF;
    v_plain := imem_plain_v1(p_text);
    IF octet_length(v_plain) = length(v_plain) THEN
        RETURN to_tsvector('pg_catalog.english', v_plain);
    END IF;
    v_words := imem_alphabets_v1(v_plain);
    RETURN v_words || array_to_tsvector(ARRAY(
        SELECT DISTINCT r.run[n] || coalesce(r.run[n + 1], '') FROM imem_runs_v1(v_plain) AS r (run)
        CROSS JOIN LATERAL generate_subscripts(r.run, 1) AS n));
END
$$;

CREATE FUNCTION imem_terms_v1(p_query text) RETURNS tsquery[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = public, pg_temp
AS $$
-- The terms of a query, at most 64, nothing of which is syntax: its words, and each two characters of scripts without blanks. One such
-- character by itself stands for all that begins with it.
SELECT ARRAY(
    SELECT CASE WHEN t.begins THEN (quote_literal(t.term) || ':*')::tsquery ELSE quote_literal(t.term)::tsquery END
    FROM (
        -- A backslash would be one of tsquery's own.
        SELECT 1 AS list, l.positions[1]::integer AS nth, replace(l.lexeme, '\', '') AS term, false AS begins
        FROM unnest(CASE WHEN octet_length(p_query) = length(p_query) THEN to_tsvector('pg_catalog.english', p_query)
            ELSE imem_alphabets_v1(imem_plain_v1(p_query)) END) AS l
        UNION ALL
        SELECT 2, min(r.nth * 10000 + n)::integer, r.run[n] || coalesce(r.run[n + 1], ''), cardinality(r.run) = 1
        FROM imem_runs_v1(imem_plain_v1(p_query)) WITH ORDINALITY AS r (run, nth) CROSS JOIN LATERAL generate_subscripts(r.run, 1) AS n
        WHERE n < cardinality(r.run) OR cardinality(r.run) = 1 GROUP BY 3, 4
    ) AS t WHERE t.term <> '' ORDER BY t.list, t.nth, t.term LIMIT 64)
$$;
