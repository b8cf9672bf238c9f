"""A migration that stands on the main branch never changes: somebody has data that it made."""

from __future__ import annotations

import hashlib
from typing import Final

from imem.journal.statements import root_of

FROZEN: Final = {
    "001_journal.sql": "e9be0f1ab4565677a7b4ec8560406bfb776012d7ac8e879d50291da19031ab5b",
    "002_append.sql": "bd840139233895d212032b083acf52e1917666705828612e6a00ea83c53b122d",
    "003_credibility.sql": "62e839210379ce93597749f50b9e9ab6cdbe0b1781f20f3ad707e757de4eb1c1",
    "004_checkpoints.sql": "384abd83a369735bae18492affcc7c0e662f220ef337742400595a7ebed9ad06",
    "005_langgraph.sql": "f587188f2ac71b51de44856fd20fba9d4b8d4ade138887a29478b26afb575213",
    "006_conversations.sql": "6116eb9afd7d76d24d97b6055237c6113298d4e607b948ccd1b013319f928e16",
    "007_pauses.sql": "5e05a410f85f6b9653e21031ebaba9379279d541b5f77fb3754e16bd678f1c42",
    "008_workflow_threads.sql": "3d45d19d104ad3d8cfb0d57e67e084a4035d785eb74c6552db46627590547435",
    "009_conversation_owners.sql": "c2972b233c3771b6c8f006411cf6a1a9d96f57724d82f16f92ca04230b28db91",
    "010_gates.sql": "a9fc8bef954b0c02863dbc1c25e71d1baf3594cbecb6255277fbadabe7733339",
    "011_lanes.sql": "cd988cb00bc26379555a0d1b9cef7a5fe19e64dadbc769f24ad03ba4d9ef7e59",
    "012_snapshots.sql": "d082c3aaf2f1dd7808640acf3c9e4b2e1fada4a9d33564b9648f91c76bab9882",
    "013_pattern_epoch.sql": "830e81b3ae0e8b17bb731f79a8f5ad9f6c4402cc0864e6195a16ecce46f44314",
    "014_similarity.sql": "f87783239ffdc4123e345244225f6c4ffc44861f070df170a56aab5b49c29115",
    "015_traces.sql": "b19de68ad183179f7beb2a1abdb0d01b4125ba6eac853d94c8334437a96e4aa4",
    "016_pattern_values.sql": "26fa77fab3a2c42b52e12114fcaf01cd2ebd7e680a06a1b1a3875490b3b088ec",
    "017_patterns_by_sector.sql": "b5e03025b72076a8e2bed1a76183690d347f3133785cb527a9a36f7daa6d79c5",
    "018_half_vectors.sql": "c58297d7a064ea94f4aedcc2de9666fac543a0748af8f367bc7287f2d2f671ec",
    "019_new_ones_first.sql": "73626542d629b6b1091b50a7f10eb41c1907fd1e0d178cc91af6ac65e1747407",
    "020_cheaper_saves.sql": "391d396fb3ee4639bae9a531f7dba2c2cf01570f3652b090ca9ebbed7cead6d4",
    "021_journal_clock.sql": "d90916d899e7b2c8cf317ad3ba7961b76d7f9325da407110c2e58e9124d38f41",
    "022_skill.sql": "3e634a9b5dcb8de9fbdeac9c77a5617a1924b46baf03a482c496faccee3252bc",
    "023_journal_identity.sql": "23152a01c15265c153b9bad919b515feda4919dc964ef91918540fca66a20d73",
    "024_names_of_subjects.sql": "397fa81c0ba3c98e8c9efea0b5b579109e3fe0d8259c3b57a1ad8d1b3b144b83",
    "025_stances.sql": "825a876b59e2f3a69e28b66986c0867f45ae122385ba7dfdb064dc1b470b8ec9",
    "026_late_questions.sql": "136b7ccf8d6a437cfe878e9a977264fb47d38b5eb6b368f1980fc3cb72bf5515",
    "027_late_claims.sql": "de5343d7b57a3c9adea1ffc9a08976c4bcaa948f23b41ae50a2a5fec4b223e7f",
    "028_horizon_of_open_writers.sql": "a869cd5dbd54abc47abc6b75c302884398392710f437206e9d14c0178f50b470",
    "029_other_questions.sql": "5e9f627a96f535f1d74b81a86559db4f8389e57f7aa078191e09c068f0520111",
    "030_pipeline_role.sql": "83ff6c36603f301efd5faf83b1324d64c90c4e52bafa73a8c703fa9dc90b84c1",
    "001_constraints.cypher": "4632e73a333e11a0e64ff605e66d12f909e128989b5f038ec7cbc8fc6fa5149e",
    "002_indexes.cypher": "5bc68af213de32c731455fe28b851856df7453c5285b89ab40e884c934278c0c",
}
"""Name of each file → its SHA-256. A new one is added here; none is ever edited, not even a comment."""


def test_no_migration_changes() -> None:
    folders = (root_of("journal", "sql") / "migrations", root_of("kg", "cypher") / "schema")
    files = [file for folder in folders for file in sorted(folder.iterdir()) if file.suffix in {".sql", ".cypher"}]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == FROZEN
