"""Decodes JSON as fortio does, into fortio's types without unknown fields, and prints the result.

The types are those that fortio documents for its results: `fhttp.HTTPRunnerResults` (which embeds `periodic.RunnerResults` and
`fhttp.HTTPOptions`) and `stats.HistogramData`, version 1.63. Go decodes a number into an int only if it is whole.
"""

import json
import re
import sys

INT, FLOAT, TEXT, FLAG, TIME = "int64", "float64", "string", "bool", "time.Time"
INTERVAL = {"Start": FLOAT, "End": FLOAT, "Percent": FLOAT, "Count": INT}
PERCENTILE = {"Percentile": FLOAT, "Value": FLOAT}
HISTOGRAM = {
    "Count": INT, "Min": FLOAT, "Max": FLOAT, "Sum": FLOAT, "Avg": FLOAT, "StdDev": FLOAT,
    "Data": [INTERVAL], "Percentiles": [PERCENTILE],
}
RUNNER_RESULTS = {
    "RunType": TEXT, "Labels": TEXT, "StartTime": TIME, "RequestedQPS": TEXT, "RequestedDuration": TEXT,
    "ActualQPS": FLOAT, "ActualDuration": INT, "NumThreads": INT, "Version": TEXT,
    "DurationHistogram": HISTOGRAM, "ErrorsDurationHistogram": HISTOGRAM,
    "Exactly": INT, "Jitter": FLAG, "Uniform": FLAG, "NoCatchUp": FLAG, "RunID": INT, "AccessLoggerInfo": TEXT, "ID": TEXT,
}
HTTP_RESULTS = RUNNER_RESULTS | {
    "RetCodes": {INT: INT}, "IPCountMap": {TEXT: INT}, "URL": TEXT, "NumConnections": INT,
    "Sizes": HISTOGRAM, "HeaderSizes": HISTOGRAM, "Sockets": [INT], "SocketCount": INT, "ConnectionStats": HISTOGRAM,
    "AbortOn": INT,
}


def check(value, kind, where):
    """Refuses values that Go's decoder would refuse."""
    def refuse(why):
        sys.exit(f"fortio cannot read {where}: {why}: {value!r}")

    if value is None and (isinstance(kind, (dict, list)) or kind is HISTOGRAM):
        return
    if isinstance(kind, list):
        if not isinstance(value, list):
            refuse("not a list")
        for at, one in enumerate(value):
            check(one, kind[0], f"{where}[{at}]")
    elif isinstance(kind, dict) and set(kind) in ({INT}, {TEXT}):
        for key, one in value.items():
            if INT in kind and not re.fullmatch(r"-?\d+", key):
                refuse(f"key {key}")
            check(one, next(iter(kind.values())), f"{where}.{key}")
    elif isinstance(kind, dict):
        if not isinstance(value, dict):
            refuse("not an object")
        for key, one in value.items():
            if key not in kind:
                refuse(f"unknown field {key}")
            check(one, kind[key], f"{where}.{key}")
    elif kind == TEXT and not isinstance(value, str):
        refuse("not a string")
    elif kind == TIME and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", str(value)):
        refuse("not a time of RFC 3339")
    elif kind == FLAG and not isinstance(value, bool):
        refuse("not a bool")
    elif kind == INT and (isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63):
        refuse("not an int64")
    elif kind == FLOAT and (isinstance(value, bool) or not isinstance(value, (int, float))):
        refuse("not a float64")


def percentile(histogram, percent):
    """The percentile as `HistogramData.CalcPercentile` documents it: interpolated linearly within its interval."""
    before = 0.0
    for interval in histogram["Data"]:
        if percent <= interval["Percent"]:
            share = (percent - before) / (interval["Percent"] - before)
            return interval["Start"] + share * (interval["End"] - interval["Start"])
        before = interval["Percent"]
    return histogram["Max"]


results = json.load(sys.stdin)
check(results, HTTP_RESULTS, "HTTPRunnerResults")
# Fields that fortio's pages draw.
for name in ("RunType", "StartTime", "ActualQPS", "ActualDuration", "NumThreads", "DurationHistogram", "RetCodes", "URL"):
    if name not in results:
        sys.exit(f"fortio's pages need {name}")
histogram = results["DurationHistogram"]
edges = [edge for interval in histogram["Data"] for edge in (interval["Start"], interval["End"])]
print(json.dumps({
    "id": results["ID"], "run_type": results["RunType"], "actual_qps": results["ActualQPS"],
    "ret_codes": results["RetCodes"], "count": histogram["Count"], "max": histogram["Max"],
    "p99": percentile(histogram, 99), "in_order": edges == sorted(edges),
    "counted": sum(interval["Count"] for interval in histogram["Data"]),
}))
