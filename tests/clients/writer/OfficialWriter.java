// The same as main.go, with the official client for Java.
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.ClientBuilder;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

public final class OfficialWriter {
    private static final long PAUSE = 200;
    private static final long LIMIT = 120_000;
    private static final Path NAMESPACE = Path.of("/var/run/secrets/kubernetes.io/serviceaccount/namespace");

    private final String name;
    private final String namespace = Files.readString(NAMESPACE).trim();
    private final CoreV1Api api = new CoreV1Api(ClientBuilder.cluster().build());
    private final SharedIndexInformer<V1ConfigMap> informer;
    private int stale = 0;

    private OfficialWriter(String name) throws IOException {
        this.name = name;
        // A watch has no last byte, so its client has no limit for reading.
        ApiClient patient = ClientBuilder.cluster().build();
        patient.setReadTimeout(0);
        SharedInformerFactory factory = new SharedInformerFactory(patient);
        CoreV1Api watched = new CoreV1Api(patient);
        this.informer = factory.sharedIndexInformerFor(
            (CallGeneratorParams parameters) -> watched.listNamespacedConfigMap(namespace)
                .labelSelector("writer=" + name).resourceVersion(parameters.resourceVersion)
                .timeoutSeconds(parameters.timeoutSeconds).watch(parameters.watch).buildCall(null),
            V1ConfigMap.class, V1ConfigMapList.class);
        factory.startAllRegisteredInformers();
    }

    public static void main(String[] arguments) throws Exception {
        OfficialWriter writer = new OfficialWriter(arguments[0]);
        while (!writer.informer.hasSynced()) {
            Thread.sleep(PAUSE);
        }
        for (int number = writer.informed(); ; number++) {
            try {
                writer.write(number);
            } catch (Exception error) {
                // Threads of the client would keep the process alive.
                error.printStackTrace();
                System.exit(1);
            }
            System.out.println((number + 1) + " " + writer.stale);
            Thread.sleep(PAUSE);
        }
    }

    private int informed() {
        return informer.getIndexer().list().size();
    }

    /** Creates a ConfigMap, and waits until a list and the informer contain it. */
    private void write(int number) throws Exception {
        V1ConfigMap object = new V1ConfigMap()
            .metadata(new V1ObjectMeta().name(name + "-" + number)
                .labels(Map.of("writer", name, "app", "web")))
            .data(Map.of("number", Integer.toString(number)));
        long deadline = System.currentTimeMillis() + LIMIT;
        for (int failures = 0; ; failures++) {
            try {
                api.createNamespacedConfigMap(namespace, object).execute();
                break;
            } catch (ApiException error) {
                // An attempt without a response may have created the object.
                if (error.getCode() == 409 && failures > 0) {
                    break;
                }
                if (error.getCode() == 409 || System.currentTimeMillis() > deadline) {
                    throw error;
                }
                again("create: " + error);
            }
        }
        while (true) {
            try {
                int count = api.listNamespacedConfigMap(namespace).labelSelector("writer=" + name)
                    .execute().getItems().size();
                if (count == number + 1) {
                    break;
                }
                stale++;
                again(count + " of " + (number + 1) + " ConfigMaps in the list");
            } catch (ApiException error) {
                again("list: " + error);
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the list does not contain the own write");
            }
        }
        while (informed() != number + 1) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the informer does not contain the own write");
            }
            Thread.sleep(PAUSE);
        }
    }

    private static void again(String problem) throws InterruptedException {
        System.err.println("writer: again: " + problem.replace('\n', ' '));
        Thread.sleep(PAUSE);
    }
}
