// holds_analyses //
// Whether there is anything to ask about: holds. The server answers from its own counts.
RETURN COUNT { MATCH (:Analysis) } > 0 AS holds

// change_nothing //
// A change that is rolled back: what runs after it in its transaction is planned as what follows a write.
CREATE (:AppliedEvent)
