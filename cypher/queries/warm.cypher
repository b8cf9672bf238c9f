// holds_analyses //
// Whether the graph holds analyses: holds. Answered from the server's counts.
RETURN COUNT { MATCH (:Analysis) } > 0 AS holds

// change_nothing //
// A change that is rolled back: statements after it in its transaction are planned like statements after a write.
CREATE (:AppliedEvent)
