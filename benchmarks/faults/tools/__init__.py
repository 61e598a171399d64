"""Who is asked: eureka, and the tools that people could use instead, each as its documentation says.

Those watch a run while it trains, so they see it from its first step, for the steps before the hand-over and `WATCHED` more. They
have other names for what they find; each finding is read as every cause of ours that it can mean. They are installed in an
environment of their own: ``pip install training-doctor torchmortem neuraldbg torchdiag``
(0.1.0, 0.1.1, 1.3.2 and 0.1.0 were tried).
"""
