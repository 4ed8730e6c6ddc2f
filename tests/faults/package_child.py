"""Control planes that install packages and live until their failpoint: see `composition_child`.

    python -m tests.faults.package_child DIRECTORY

Beside writes to the store, what is done to the disk are points too: each part of a download, what was downloaded coming
to its name, unpacking, and deleting.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from planform.app import ControlPlane
from planform.packages.fetching import RegistryPackages
from planform.packages.runtimes.host import Draining, RuntimeHost
from tests.faults.composition_child import Life, Order, main
from tests.faults.failpoints import Failpoints
from tests.faults.package_cycle import PHASES, PackageCycle


class PackageOrder(Order):
    phases = PHASES
    seconds = 200.0

    def life(self, plane: ControlPlane) -> Life:
        return PackageCycle(plane, self.directory, self.order["home"], self.order["needed"])

    def prepare(self, points: Failpoints) -> None:
        points.surround_writers_and_callers()
        points.surround_package_files()
        # What nobody needs is kept for an hour, and what nobody calls for two seconds: a cycle must see its end.
        _default(RegistryPackages, spare=timedelta(0))
        _default(RuntimeHost, draining=Draining(quiet=0.05))


def _default(kind: type, **values: object) -> None:
    defaults = kind.__init__.__kwdefaults__  # type: ignore[misc]
    assert defaults.keys() >= values.keys()
    defaults.update(values)


if __name__ == "__main__":
    main(Path(sys.argv[1]), PackageOrder)
