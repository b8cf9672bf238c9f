"""One request about one subject: what was asked, cache lookup, load, fallbacks, and the read horizon of them all."""
