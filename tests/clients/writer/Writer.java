// The same as main.go, with fabric8's client for Java.
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.Map;

public final class Writer {
    private static final long PAUSE = 200;
    private static final long LIMIT = 120_000;

    private final String name;
    private final KubernetesClient client = new KubernetesClientBuilder().build();
    private final SharedIndexInformer<ConfigMap> informer;
    private int stale = 0;

    private Writer(String name) {
        this.name = name;
        this.informer = client.configMaps().withLabel("writer", name).inform();
    }

    public static void main(String[] arguments) throws Exception {
        Writer writer = new Writer(arguments[0]);
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
        return informer.getStore().list().size();
    }

    /** Creates a ConfigMap, and waits until a list and the informer contain it. */
    private void write(int number) throws Exception {
        ConfigMap object = new ConfigMapBuilder()
            .withNewMetadata().withName(name + "-" + number)
            .withLabels(Map.of("writer", name, "app", "web")).endMetadata()
            .withData(Map.of("number", Integer.toString(number))).build();
        long deadline = System.currentTimeMillis() + LIMIT;
        for (int failures = 0; ; failures++) {
            try {
                client.configMaps().resource(object).create();
                break;
            } catch (KubernetesClientException error) {
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
                int count = client.configMaps().withLabel("writer", name).list().getItems().size();
                if (count == number + 1) {
                    break;
                }
                stale++;
                again(count + " of " + (number + 1) + " ConfigMaps in the list");
            } catch (KubernetesClientException error) {
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
