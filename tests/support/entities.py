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


WIDE = "contexts_com_acme_web_page_1"
