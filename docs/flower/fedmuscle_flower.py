"""A federation over machines that Flower starts: ``serve`` where its ServerApp runs, ``join`` where
its nodes are.

A message goes to each node once a run, and tells it to begin; it carries nothing else. What a party
runs is in its node's own config: ``python`` (of the library's environment) and ``file`` (the
party's TOML file). All exchange is the library's own, over TLS.
"""

import subprocess
import time

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server = ServerApp()
client = ClientApp()
POLL = 1.0  # seconds
LEAVE = 120.0  # seconds that nodes have to say that they are through


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Start the library's server, tell every node to join, and end with it."""
    config = context.run_config
    deadline = time.monotonic() + float(config["seconds"])
    process = subprocess.Popen(
        [str(config["python"]), "-m", "fedmuscle_lib", "serve", str(config["file"])]
    )
    try:
        while len(nodes := list(grid.get_node_ids())) < int(config["parties"]):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{len(nodes)} of {config['parties']} nodes came")
            time.sleep(POLL)
        sent = set(
            grid.push_messages(
                [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]
            )
        )
        if code := process.wait(deadline - time.monotonic()):
            raise RuntimeError(f"the server ended with exit code {code}")
        deadline = time.monotonic() + LEAVE
        while sent and time.monotonic() < deadline:
            sent -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(sent)}
            time.sleep(POLL)
    finally:
        process.terminate()
        process.wait()


@client.train()
def train(message: Message, context: Context) -> Message:
    """Take part with what the node's own config names, until the rounds are over."""
    own = context.node_config
    code = subprocess.run(
        [str(own["python"]), "-m", "fedmuscle_lib", "join", str(own["file"])]
    ).returncode
    return Message(RecordDict({"join": MetricRecord({"exit_code": code})}), reply_to=message)
