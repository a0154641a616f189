//! Runs the operator, `kubewarm run`, as a process and measures it from outside.

use crate::{
    call::{self, Content},
    exposition, load,
    programs::Programs,
    serving,
    usage::Usage,
};
use anyhow::{Context, Result, bail, ensure};
use http::{Method, StatusCode};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fmt,
    fs::File,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

/// The operator's namespace. Its profiles can name every other namespace.
pub const NAMESPACE: &str = "kubewarm-system";
/// The path of the profiles in the operator's namespace.
pub(crate) const PROFILES: &str =
    "/apis/kubewarm.io/v1alpha1/namespaces/kubewarm-system/cacheprofiles";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The interval between two readiness checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The time limit for each start, end and definition of a kind: far longer than the targets of all
/// figures.
const PATIENCE: Duration = Duration::from_mins(2);

/// Installs the CRD that `kubewarm crd` prints, and the operator's namespace.
///
/// # Errors
///
/// If the server refuses one of them.
pub async fn install(client: &Client, kubewarm: &Path) -> Result<()> {
    let crd = Command::new(kubewarm).arg("crd").output().await?;
    ensure!(crd.status.success(), "kubewarm crd: {}", String::from_utf8_lossy(&crd.stderr));
    call::write(client, Method::POST, CRDS, Content::Yaml, crd.stdout).await?;
    load::namespace(client, NAMESPACE).await?;
    established(client, "cacheprofiles.kubewarm.io").await
}

/// Creates a custom resource whose objects can have any `spec`, and waits until it is served.
///
/// # Errors
///
/// If the server refuses it, or does not serve it within two minutes.
pub async fn define(client: &Client, group: &str, plural: &str, kind: &str) -> Result<()> {
    let name = format!("{plural}.{group}");
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    });
    load::create(client, CRDS, &definition).await?;
    established(client, &name).await
}

async fn established(client: &Client, name: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let is_established = |crd: &Value| {
        crd["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        })
    };
    while !is_established(&call::get_json(client, &format!("{CRDS}/{name}")).await?) {
        ensure!(Instant::now() < end, "{name} was not established within {PATIENCE:?}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Creates a profile with these targets in the operator's namespace.
///
/// # Errors
///
/// If the server refuses it.
pub async fn declare(client: &Client, name: &str, targets: &[Value]) -> Result<()> {
    declare_spec(client, name, &json!({ "targets": targets })).await
}

/// Creates a profile with this `spec` in the operator's namespace.
///
/// # Errors
///
/// If the server refuses it.
pub async fn declare_spec(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let profile = json!({
        "apiVersion": "kubewarm.io/v1alpha1",
        "kind": "CacheProfile",
        "metadata": {"name": name},
        "spec": spec,
    });
    load::create(client, PROFILES, &profile).await
}

/// Deletes a profile.
///
/// # Errors
///
/// If the profile does not exist.
pub async fn withdraw(client: &Client, name: &str) -> Result<()> {
    let path = format!("{PROFILES}/{name}");
    call::write(client, Method::DELETE, &path, Content::Json, Vec::new()).await
}

/// The process of the operator. Dropping it kills the process.
pub struct OperatorProcess {
    child: Child,
    pid: u32,
    admin: Client,
    started: Instant,
}

impl fmt::Debug for OperatorProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorProcess").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl OperatorProcess {
    /// Starts the operator. Its log is `<name>.log` in the folder of logs.
    ///
    /// # Errors
    ///
    /// If the program or the log cannot be opened.
    pub fn start(programs: &Programs, kubeconfig: &Path, name: &str) -> Result<Self> {
        Self::start_with(programs, kubeconfig, name, &["--api-addr="])
    }

    /// As [`start`](Self::start), with further arguments.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(
        programs: &Programs,
        kubeconfig: &Path,
        name: &str,
        more: &[&str],
    ) -> Result<Self> {
        let admin = serving::free_address()?;
        let log = programs.logs.join(format!("{name}.log"));
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let started = Instant::now();
        let child = Command::new(&programs.kubewarm)
            .args(["run", "--shutdown-delay=0s", "--operator-namespace", NAMESPACE])
            .args(["--admin-addr", &admin.to_string()])
            .args(more)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", programs.kubewarm.display()))?;
        let pid = child.id().context("the operator ended at once")?;
        let mut config = Config::new(format!("http://{admin}").parse()?);
        config.default_retry = false;
        Ok(Self { child, pid, admin: Client::try_from(config)?, started })
    }

    /// Waits for `/readyz`, and returns the time since the start of the process. While informers
    /// sync, `/readyz` changes only once a second; [`warmup_seconds`](Self::warmup_seconds) has no
    /// such steps.
    ///
    /// # Errors
    ///
    /// If the process ends, or is not ready within two minutes.
    pub async fn ready(&mut self) -> Result<Duration> {
        self.ready_within(PATIENCE).await
    }

    /// As [`ready`](Self::ready), with another time limit.
    pub(crate) async fn ready_within(&mut self, patience: Duration) -> Result<Duration> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator ended: {status}; see its log");
            }
            if call::get(&self.admin, "/readyz", "*/*")
                .await
                .is_ok_and(|answer| answer.status() == StatusCode::OK)
            {
                return Ok(self.started.elapsed());
            }
            sleep(LOOK_EVERY).await;
        }
        bail!("the operator was not ready within {patience:?}; see its log")
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The operator's memory and processor time.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Resets the peak memory to the current memory.
    ///
    /// # Errors
    ///
    /// If the kernel cannot do that.
    pub fn reset_peak(&self) -> Result<()> {
        crate::usage::reset_peak(self.pid)
    }

    /// The sum of a metric's series that contain `label`; 0 if there are none.
    ///
    /// # Errors
    ///
    /// If the operator does not answer.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        // The sum of no values is -0.
        Ok(0.0 + exposition::values(&self.metrics().await?, name, label).sum::<f64>())
    }

    /// The time from the declaration of the operator's first informer until all informers have
    /// synced, in seconds. Call this function once the operator is ready.
    ///
    /// # Errors
    ///
    /// If the operator does not answer.
    pub async fn warmup_seconds(&self) -> Result<f64> {
        let text = self.metrics().await?;
        let times = |name| exposition::values(&text, name, "");
        let start = times("kubewarm_warmup_start_timestamp_seconds").fold(f64::INFINITY, f64::min);
        Ok(times("kubewarm_warmup_synced_timestamp_seconds").fold(0.0, f64::max) - start)
    }

    async fn metrics(&self) -> Result<String> {
        call::get_text(&self.admin, "/metrics").await
    }

    /// Freezes the process, so that it receives no events.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes the process.
    ///
    /// # Errors
    ///
    /// If the process has ended.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends the operator with SIGTERM, so that it releases the lease.
    ///
    /// # Errors
    ///
    /// If it does not end within two minutes.
    pub async fn end(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }

    /// Ends the operator with SIGKILL.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("no such pid")?;
        Ok(kill_process(pid, signal)?)
    }
}
