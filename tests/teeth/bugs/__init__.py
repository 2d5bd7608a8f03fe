"""All deliberate bugs."""

from typing import Final

from tests.teeth.bugs.durability import DURABILITY
from tests.teeth.bugs.groups import GROUPS
from tests.teeth.bugs.producers import PRODUCERS
from tests.teeth.bugs.reading import READING
from tests.teeth.bugs.recovery import RECOVERY
from tests.teeth.bugs.transactions import TRANSACTIONS

BUGS: Final = (*DURABILITY, *PRODUCERS, *READING, *TRANSACTIONS, *GROUPS, *RECOVERY)
