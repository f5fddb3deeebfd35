"""Logits become a better model: the loss, one update, the loop.

loss.py, update.py and loop.py are what a student reads. What a run needs besides, on disk and at signals, is in run/;
what several devices or little memory need is in scale/.

Other rooms use:

    batch_loss: batch_loss, BatchLoss
    learning: Learner, MovingAverage, Update
    loop: train
    optimization: build_optimizer, learning_rate
    progress: compare_with_best, is_due, is_trained, may_change, Progress, with_counts
"""
