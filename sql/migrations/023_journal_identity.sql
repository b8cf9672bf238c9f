-- Tells one journal from another: a graph that was filled from another journal is no projection of this one. A copy of the
-- database, such as a restored dump, keeps the identity.
CREATE TABLE journal_identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO journal_identity DEFAULT VALUES;
