"""A federation over machines: each party keeps its data and its model, and a server that has
neither answers their messages.

FedMuscle's algorithm, server and client are those of a run in one process. ``Aggregator`` gives the
algorithm a seat for each party in a client's place; a seat hands over what the party sent and hands
back the reply. So the two kinds of run compute the same numbers to the bit.

- *Transport.* gRPC over TLS, unary calls. An exchange of a batch is one call: Z^n there, the reply
  back when all have sent. A call has its own deadline and can be repeated: the same message again
  gets the same answer, and another one in its place is refused. A stream's messages offer neither.
  No call waits longer than 20 s; who waits is told for whom, and asks again.
- *Messages* are a checked JSON head and safetensors. FedMuscle's server checks the numbers, as in
  one process.
- *Identity.* The server has a certificate. A party signs what the server drew for this connection
  with a key that the server's file lists.
- *A round* is: local training, ``ready`` (the server closes the roster when all whom it expects are
  ready or a bound is reached), every public batch, ``finished``. M others are drawn from the
  roster. Who leaves during a round is left out of its remaining batches; who comes back joins the
  next one. Nobody waits twice for a party that is gone.
- *State.* A party is one long-running process: loading a model anew in every round would take
  seconds, and a round's exchange takes less than one. It keeps checkpoints of the last two rounds'
  ends, since a killed server may be one round behind it. The server keeps the finished rounds as
  JSON.
- *Who decides.* The server's file has the terms, which are all that it asks (``Terms``). A party's
  file has its data, model, training and limits; the party checks the terms against these before it
  proves who it is, and counts what it sends.

In the order of their imports: ``terms`` (and both files), ``messages``, ``keys``, ``history``,
``aggregator``, ``public``, ``service`` (gRPC), ``party``, ``serve``, ``relay``, ``bench``. It needs
the extra ``federated``; nothing of the library imports it but commands, when they run.
"""
