// holds_analyses //
// Whether there is anything to ask about: holds. The server answers from its own counts.
RETURN COUNT { MATCH (:Analysis) } > 0 AS holds
