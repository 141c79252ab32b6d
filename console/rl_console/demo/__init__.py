"""The demo: a whole RLJob on a cluster, stage by stage."""
