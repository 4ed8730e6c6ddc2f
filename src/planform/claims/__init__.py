"""Claims: each keeps an XR of its own, and shows what becomes of it."""
