from agar.trainer.algorithms.metrics import mean_metrics


def test_sums_become_means_over_tokens_and_loss_parts_stay():
    assert mean_metrics({"loss": 0.5, "tokens": 4.0, "entropy_sum": 2.0}) == {
        "trainer/loss": 0.5,
        "trainer/tokens": 4.0,
        "trainer/entropy_mean": 0.5,
    }
    assert mean_metrics({"tokens": 0.0, "nll_sum": 0.0})["trainer/nll_mean"] == 0
