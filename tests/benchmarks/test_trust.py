"""The trust benchmark measures everything that it says, on made data."""

import json

from benchmarks import trust


def test__run__quick_form_of_ici__has_every_figure() -> None:
    record = trust.run("ici", None, 0, quick=True)

    assert record["made_data"]
    last = record["by_step"][-1]
    assert {"ece", "nll", "brier", "ece_plain", "sets", "abstain", "ece_task_known"} <= last.keys()
    assert set(record["false_alarms"]) == {"held_back", "generated"}
    assert {"mahalanobis", "energy", "p_value"} <= record["strangers"]["mean"].keys()
    assert record["gaps"][0]["missing"] == 0
    assert record["gaps"][0]["confidence"] > record["gaps"][-1]["confidence"]
    assert "same_task" in record["drift"]
    assert record["audit"]["groups"][0]["name"] == "all"
    assert [entry["samples"] for entry in record["audit_by_size"]] == list(trust.SIZES)
    json.dumps(record, allow_nan=False)
