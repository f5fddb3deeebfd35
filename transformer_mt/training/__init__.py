"""Logits become a better model: the loss, one update, the loop.

A student reads loss.py, update.py and loop.py. run/ has what a run needs around its updates, such as files and signals;
scale/ has what training needs on several devices or with little memory.

Other rooms use:

    batch_loss: batch_loss, BatchLoss
    learning: Learner, MovingAverage, Update
    loop: one_update, train
    optimization: build_optimizer, learning_rate
    progress: compare_with_best, is_due, is_trained, may_change, Progress
"""
