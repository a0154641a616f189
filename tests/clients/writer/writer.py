"""The same as main.go, with the official client for Python."""

import sys
import threading
import time

from kubernetes import client, config, watch

NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
PAUSE = 0.2
LIMIT = 120


class Writer:
    def __init__(self, name):
        config.load_incluster_config()
        self.api = client.CoreV1Api()
        self.name = name
        self.selector = f"writer={name}"
        with open(NAMESPACE_FILE, encoding="utf-8") as file:
            self.namespace = file.read().strip()
        self.stale = 0
        self.informed = set()
        self.is_informed = threading.Event()

    def list(self):
        return self.api.list_namespaced_config_map(
            self.namespace, label_selector=self.selector, _request_timeout=10
        )

    def inform(self):
        """Lists and watches, as an informer does."""
        while True:
            try:
                listed = self.list()
                self.informed = {item.metadata.name for item in listed.items}
                self.is_informed.set()
                for event in watch.Watch().stream(
                    self.api.list_namespaced_config_map,
                    self.namespace,
                    label_selector=self.selector,
                    resource_version=listed.metadata.resource_version,
                    _request_timeout=(10, 60),
                ):
                    if event["type"] == "ADDED":
                        self.informed.add(event["object"].metadata.name)
            except Exception as error:
                again(f"watch: {error!r}")

    def write(self, number):
        """Creates a ConfigMap, and waits until a list and the informer contain it."""
        name = f"{self.name}-{number}"
        body = {
            "metadata": {"name": name, "labels": {"writer": self.name, "app": "web"}},
            "data": {"number": str(number)},
        }
        deadline = time.monotonic() + LIMIT
        failures = 0
        while True:
            try:
                self.api.create_namespaced_config_map(self.namespace, body, _request_timeout=10)
                break
            except Exception as error:
                # An attempt without a response may have created the object.
                if getattr(error, "status", None) == 409:
                    if failures > 0:
                        break
                    raise
                if time.monotonic() > deadline:
                    raise
                again(f"create: {error!r}")
            failures += 1
        while True:
            try:
                count = len(self.list().items)
                if count == number + 1:
                    break
                self.stale += 1
                again(f"{count} of {number + 1} ConfigMaps in the list")
            except Exception as error:
                again(f"list: {error!r}")
            if time.monotonic() > deadline:
                sys.exit("the list does not contain the own write")
        while name not in self.informed:
            if time.monotonic() > deadline:
                sys.exit("the informer does not contain the own write")
            time.sleep(PAUSE)

    def run(self):
        threading.Thread(target=self.inform, daemon=True).start()
        self.is_informed.wait()
        number = len(self.informed)
        while True:
            self.write(number)
            number += 1
            print(number, self.stale, flush=True)
            time.sleep(PAUSE)


def again(problem):
    print(f"writer: again: {problem}", file=sys.stderr, flush=True)
    time.sleep(PAUSE)


Writer(sys.argv[1]).run()
