-- Materialised views: the rows of each build, and which build is read.

CREATE TABLE view_version (
    name       text NOT NULL,
    version    bigint GENERATED ALWAYS AS IDENTITY,
    built_at   timestamptz NOT NULL DEFAULT imem_now(),
    source_seq bigint NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE view_row (
    name    text NOT NULL,
    version bigint NOT NULL,
    key     text NOT NULL,
    value   jsonb NOT NULL,
    PRIMARY KEY (name, version, key),
    FOREIGN KEY (name, version) REFERENCES view_version ON DELETE CASCADE
);

CREATE TABLE view_current (
    name      text PRIMARY KEY,
    version   bigint NOT NULL,
    FOREIGN KEY (name, version) REFERENCES view_version
);
COMMENT ON TABLE view_version IS 'Each making of a materialised view, and the last position of the journal that it looked at.';
COMMENT ON TABLE view_current IS 'Which making of a view is read. A build that fails leaves it where it was.';
