"""The sentence encoder that programs use where nothing is set."""

from typing import Final

from imem.journal.settings import Settings
from imem.services.embedders import embedder_of

LOCAL: Final = embedder_of(Settings.read({}))
