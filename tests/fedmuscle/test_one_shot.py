"""What checkpoints are worth to users before any training."""

from fedmuscle_lib.fedmuscle.one_shot import one_shot


def test_every_checkpoint_of_users_with_images_is_measured_on_ic100(settings, monkeypatch):
    monkeypatch.setattr("fedmuscle_lib.models.class_means.DRAWS", 2)
    monkeypatch.setattr("fedmuscle_lib.fedmuscle.one_shot.TESTS", 200)
    found = one_shot(settings(setup="setup2", public="flickr30k", users=(5, 6, 7, 9)))
    assert set(found) == {"vit-small", "vit-tiny"}  # one segments, one reads texts
    assert all(3 < value < 100 for value in found.values())  # chance is 1


def test_nobody_with_ic100_is_nothing_to_measure_on(settings):
    assert one_shot(settings(users=(1, 2, 6))) == {}


def test_absent_data_are_named_and_nothing_is_measured(settings, tmp_path, caplog):
    assert one_shot(settings(data_dir=tmp_path)) == {}
    assert "one-shot accuracy is not measured: " in caplog.text and "CIFAR100" in caplog.text
