from agar.trainer.publish.digest import weights_digest

HASHES = {"a": "01", "b": "02"}


def test_order_does_not_matter():
    assert weights_digest(HASHES) == weights_digest(dict(reversed(HASHES.items())))


def test_every_name_and_every_value_matters():
    others = [{"a": "01", "b": "03"}, {"a": "02", "b": "01"}, {"a": "01", "c": "02"}, {"a": "01"}]
    assert len({weights_digest(HASHES), *map(weights_digest, others)}) == 5
