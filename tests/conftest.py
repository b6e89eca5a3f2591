"""No test sees the caches of whoever runs it; processes that tests start see none either."""

import os
import tempfile

os.environ["CLOUDGAVEL_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), "cloudgavel-no-cache")
