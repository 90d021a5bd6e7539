import torch

from d2lmini.models.googlenet import googlenet


def test_has_the_published_size_and_scores_every_class():
    with torch.device("meta"):
        net = googlenet()
        assert sum(p.numel() for p in net.parameters()) == 6_998_552  # of the network without auxiliary classifiers
        assert net(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
        assert net[:-4](torch.empty(1, 3, 224, 224)).shape == (1, 1024, 7, 7)
