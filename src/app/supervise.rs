//! Runs the tasks of the operator and stops them.

use super::AppError;
use std::time::Duration;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Time in which tasks must end after `--shutdown-delay` has passed. Together with the default
/// delay of 3 s, this time is shorter than Kubernetes' default grace period of 30 s.
const DRAIN: Duration = Duration::from_secs(20);

/// Tasks that run until the shutdown. Each task returns its own name.
#[derive(Debug, Default)]
pub(super) struct ServiceTasks(JoinSet<&'static str>);

impl ServiceTasks {
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output: Send> + Send + 'static,
    ) {
        self.0.spawn(async move {
            task.await;
            name
        });
    }
}

pub(super) fn termination_signal() -> std::io::Result<impl Future<Output = ()>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Runs `tasks` until `signal` completes.
///
/// Then this function calls `announce`, keeps the tasks running for `delay`, cancels `stop` and
/// waits up to 20 s for the tasks.
///
/// If a task ends before the signal, this function returns an error, which ends the process. A
/// restart is better than an operator without one of its tasks.
pub(super) async fn supervise(
    ServiceTasks(mut tasks): ServiceTasks,
    stop: CancellationToken,
    signal: impl Future<Output = ()>,
    announce: impl FnOnce(),
    delay: Duration,
) -> Result<(), AppError> {
    let outcome = tokio::select! {
        () = signal => Ok(()),
        Some(ended) = tasks.join_next() => Err(match ended {
            Ok(name) => AppError::TaskEnded(name),
            Err(error) => AppError::TaskPanicked(error),
        }),
    };
    announce();
    if outcome.is_ok() {
        tracing::info!("shutting down");
        tokio::time::sleep(delay).await;
    }
    stop.cancel();
    let drained = timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    outcome?;
    drained.map_err(|_elapsed| AppError::Undrained(tasks.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn the_signal_stops_all_tasks_after_the_delay() {
        let (stop, mut tasks) = (CancellationToken::new(), ServiceTasks::default());
        tasks.spawn("server", stop.clone().cancelled_owned());
        let began = tokio::time::Instant::now();
        supervise(tasks, stop, ready(()), || (), Duration::from_secs(3)).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_early_ends_the_process() {
        let (stop, mut tasks) = (CancellationToken::new(), ServiceTasks::default());
        tasks.spawn("server", stop.clone().cancelled_owned());
        tasks.spawn("controller", ready(()));
        let error = supervise(tasks, stop, pending(), || (), Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, AppError::TaskEnded("controller")), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ignores_the_stop_is_reported_after_the_drain_time() {
        let mut tasks = ServiceTasks::default();
        tasks.spawn("stubborn", pending::<()>());
        let stop = CancellationToken::new();
        let error = supervise(tasks, stop, ready(()), || (), Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, AppError::Undrained(1)), "{error}");
    }
}
