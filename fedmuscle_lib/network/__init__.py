"""A federation over machines: each party keeps its data and its model, and a server that has
neither answers their messages.

The arithmetic is that of a run in one process, to the bit: ``rounds`` gives FedMuscle's own
algorithm and server a seat for each party in a client's place, and ``party`` has FedMuscle's own
client.

- ``rounds`` needs nothing of a network but a function ``ask({user: question}) -> {user: answer}``,
  in bytes; who does not answer is missing in what it returns. ``party`` is the other end, a
  function of a question. Any engine that can carry these two will do.
- ``server`` and ``join`` are our engine: gRPC over mutual TLS. A party's certificate says which
  user it is. A party calls with its last answer and gets the next question; a call can be made
  again, since an answer belongs to one question.
- A party's state is its checkpoint after a round and the questions since. One that was killed is
  asked the questions of the round again, so it loses nothing. A server that was killed begins the
  round again, and so do the parties, from their checkpoints.

It needs the extra ``federated``; nothing of the library imports it but commands, when they run.
"""
