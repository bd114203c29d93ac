"""The limiters of `limits`: `limits_player.py URL`, the address of a Redis.

Reads requests as lines of JSON, and writes an answer to each. `hit` tells no wait: applications compute it from the
reset time of `get_window_stats`, as Flask-Limiter does for Retry-After.
"""

import json
import sys
import time

from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

storage = storage_from_string(sys.argv[1])
limiters = {f"limits {name}": strategy(storage) for name, strategy in STRATEGIES.items()}

for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    limiter = limiters[request["limiter"]]
    item = RateLimitItemPerSecond(request["limit"], request["window"])
    # The strategies share the names of their keys.
    names = request["limiter"], request["key"]
    answer["allowed"] = limiter.hit(item, *names, cost=request["weight"])
    if not answer["allowed"]:
        reset = limiter.get_window_stats(item, *names).reset_time
        answer["wait"] = max(0, reset - time.time()) * 1000
    print(json.dumps(answer), flush=True)
