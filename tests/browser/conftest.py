"""The fixtures of browser tests. `make install` brings Playwright; where there is none, they are left out."""

from importlib.util import find_spec

if find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from tests.browser.looking import background, site

    __all__ = ["background", "site"]
