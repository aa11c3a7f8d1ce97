import numpy as np

from agar.trainer.publish.probe import probe_ids, row_to_score


def test_the_probe_is_the_same_every_time_and_within_the_vocabulary():
    ids = probe_ids(50, 400)
    assert np.array_equal(ids, probe_ids(50, 400))
    assert (ids.min(), ids.max()) == (0, 49)


def test_every_token_but_the_first_is_scored():
    row = row_to_score(np.array([5, 6, 7], np.int32))
    assert row.token_ids.tolist() == [5, 6]
    assert row.targets.tolist() == [6, 7]
    assert row.loss_mask.all()
