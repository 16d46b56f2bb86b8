"Enriched events with entities, as literal lines."

import json

from inputs import line


def frame_of_lines(spark, text):
    return spark.createDataFrame([(line,) for line in text.split("\n") if line], "value string")


BASE = {"collector_tstamp": "2026-11-20 10:00:00.123456", "event_id": "00000000-0000-4000-8000-00000000000A"}
ENVELOPE = "iglu:com.snowplowanalytics.snowplow/{}/jsonschema/1-0-0"


def envelope(kind, data):
    return json.dumps({"schema": ENVELOPE.format(kind), "data": data})


def entity(name, data, version="1-0-0", vendor="com.acme"):
    return {"schema": f"iglu:{vendor}/{name}/jsonschema/{version}", "data": data}


def line_of(**values):
    return line(**(BASE | values))


A, B, C = (f"0000000{n}-0000-4000-8000-000000000000" for n in (1, 2, 3))
PAGES = envelope(
    "contexts", [entity("web_page", {"id": "p1"}), entity("web_page", {"id": "p2", "deep": {"n": 1}})]
)
CLICK = envelope("unstruct_event", entity("linkClick", {"targetUrl": "/cart"}, "1-0-1"))
LATER = "2026-11-20 10:00:01"


def five_lines():
    "Five lines: an event, a copy of it, another with its id, one of its own, and one that is none."
    first = dict(event_id=A, contexts=PAGES, unstruct_event=CLICK)
    return [
        line_of(**first, event_fingerprint="f1"),
        line_of(**first, event_fingerprint="f1"),
        line_of(**first, event_fingerprint="f2", collector_tstamp=LATER),
        line_of(event_id=B, event_fingerprint="f1", app_id="x" * 300),
        line_of(event_id=C, event_fingerprint="f1", contexts='{"schema":"none"}'),
    ]


WIDE = "contexts_com_acme_web_page_1"
