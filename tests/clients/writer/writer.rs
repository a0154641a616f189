//! The same as `main.go`, with kube-rs.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Error,
    api::{ListParams, PostParams},
    runtime::{WatchStreamExt as _, reflector, reflector::Store, watcher},
};
use serde_json::json;
use std::{
    env,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Time between two `ConfigMaps`, and between attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// It is longer than an outage of the test and the watcher's longest back-off together.
const LIMIT: Duration = Duration::from_mins(2);

/// The reason why the program ends.
type WriterFailure = Box<dyn std::error::Error>;

/// Creates `ConfigMaps` with one label.
struct ConfigMapWriter {
    name: String,
    config_maps: Api<ConfigMap>,
    informer: Store<ConfigMap>,
    /// The number of lists that lacked a `ConfigMap`.
    stale: usize,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the program prints its results")]
async fn main() -> Result<(), WriterFailure> {
    let name = env::args().nth(1).ok_or("usage: writer NAME")?;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(Client::try_default().await?);
    let (informer, filler) = reflector::store();
    let events = watcher(config_maps.clone(), watcher::Config::default()).default_backoff();
    tokio::spawn(reflector(filler, events).for_each(|_| async {}));
    informer.wait_until_ready().await?;
    let mut writer = ConfigMapWriter { name, config_maps, informer, stale: 0 };
    for number in writer.informed().. {
        writer.write(number).await?;
        println!("{} {}", number + 1, writer.stale);
        sleep(PAUSE).await;
    }
    Ok(())
}

impl ConfigMapWriter {
    /// Creates a `ConfigMap`, and waits until a list and the informer contain it.
    async fn write(&mut self, number: usize) -> Result<(), WriterFailure> {
        self.create(number).await?;
        let parameters = ListParams::default().labels(&format!("writer={}", self.name));
        let begin = Instant::now();
        loop {
            let listed = self.config_maps.list(&parameters).await.map(|list| list.items.len());
            if listed.as_ref().is_ok_and(|listed| *listed == number + 1) {
                break;
            }
            self.stale += usize::from(listed.is_ok());
            again(begin, format!("{} {number}: listed {listed:?}", self.name)).await?;
        }
        let begin = Instant::now();
        while self.informed() != number + 1 {
            let informed = format!("{} {number}: informed of {}", self.name, self.informed());
            again(begin, informed).await?;
        }
        Ok(())
    }

    async fn create(&self, number: usize) -> Result<(), WriterFailure> {
        let object = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{}-{number}", self.name),
                "labels": {"writer": self.name, "app": "web"},
            },
            "data": {"number": number.to_string()},
        }))?;
        let begin = Instant::now();
        let mut failures = 0;
        loop {
            match self.config_maps.create(&PostParams::default(), &object).await {
                Ok(_) => return Ok(()),
                Err(Error::Api(status)) if status.is_already_exists() => {
                    // An attempt without a response may have created the object.
                    return if failures > 0 { Ok(()) } else { Err(Error::Api(status).into()) };
                }
                Err(error) => again(begin, format!("{} {number}: {error}", self.name)).await?,
            }
            failures += 1;
        }
    }

    /// The number of the writer's `ConfigMaps` in the informer.
    fn informed(&self) -> usize {
        let objects = self.informer.state();
        let label = |object: &ConfigMap| object.metadata.labels.as_ref()?.get("writer").cloned();
        objects.iter().filter(|object| label(object).as_ref() == Some(&self.name)).count()
    }
}

/// Waits before the next attempt.
///
/// # Errors
///
/// `problem`, once [`LIMIT`] has passed.
#[expect(clippy::print_stderr, reason = "the program prints its problems")]
async fn again(begin: Instant, problem: String) -> Result<(), WriterFailure> {
    if begin.elapsed() > LIMIT {
        return Err(problem.into());
    }
    eprintln!("writer: again: {problem}");
    sleep(PAUSE).await;
    Ok(())
}
