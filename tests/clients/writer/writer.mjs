// The same as main.go, with the official client for JavaScript.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

// Imports do not search NODE_PATH.
const { CoreV1Api, KubeConfig, makeInformer } = createRequire(process.env.NODE_PATH + '/')('@kubernetes/client-node');

const pause = 200;
const limit = 120_000;
const name = process.argv[2];
const namespace = readFileSync('/var/run/secrets/kubernetes.io/serviceaccount/namespace', 'utf8').trim();
const selector = `writer=${name}`;

const config = new KubeConfig();
config.loadFromCluster();
const api = config.makeApiClient(CoreV1Api);
const list = () => api.listNamespacedConfigMap({ namespace, labelSelector: selector });

async function again(problem) {
    console.error(`writer: again: ${problem}`);
    await sleep(pause);
}

const informed = new Set();
const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list, selector);
informer.on('add', (object) => informed.add(object.metadata.name));
informer.on('error', async (error) => {
    await again(`watch: ${error}`);
    start();
});

async function start() {
    for (;;) {
        try {
            return await informer.start();
        } catch (error) {
            await again(`watch: ${error}`);
        }
    }
}

// write creates a ConfigMap, and waits until a list and the informer contain it.
let stale = 0;
async function write(number) {
    const body = {
        metadata: { name: `${name}-${number}`, labels: { writer: name, app: 'web' } },
        data: { number: String(number) },
    };
    const deadline = Date.now() + limit;
    for (let failures = 0; ; failures++) {
        try {
            await api.createNamespacedConfigMap({ namespace, body });
            break;
        } catch (error) {
            // An attempt without a response may have created the object.
            if (error.code === 409) {
                if (failures > 0) break;
                throw error;
            }
            if (Date.now() > deadline) throw error;
            await again(`create: ${error}`);
        }
    }
    for (;;) {
        try {
            const count = (await list()).items.length;
            if (count === number + 1) break;
            stale++;
            await again(`${count} of ${number + 1} ConfigMaps in the list`);
        } catch (error) {
            await again(`list: ${error}`);
        }
        if (Date.now() > deadline) throw new Error('the list does not contain the own write');
    }
    while (!informed.has(body.metadata.name)) {
        if (Date.now() > deadline) throw new Error('the informer does not contain the own write');
        await sleep(pause);
    }
}

await start();
for (let number = informed.size; ; number++) {
    await write(number);
    console.log(number + 1, stale);
    await sleep(pause);
}
