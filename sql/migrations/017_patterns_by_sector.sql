-- Patterns are chosen by sector first: of those that no sector and no correction names, nothing else is looked at.
CREATE INDEX pattern_value_of_sector ON pattern_value (value, key) WHERE grp IN ('core', 'correction');
