package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// reconciler writes a Secret with the data of each ConfigMap.
type reconciler struct {
	// configMaps reads from the manager's cache, which kubewarm fills.
	configMaps client.Reader
	// secrets writes to the API server; addController decides where it reads.
	secrets client.Client
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	settings := &corev1.ConfigMap{}
	if err := r.configMaps.Get(ctx, request.NamespacedName, settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if settings.Labels["app"] != "web" {
		return ctrl.Result{}, nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: settings.Namespace, Name: settings.Name}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.secrets, secret, func() error {
		secret.Data = map[string][]byte{}
		for key, value := range settings.Data {
			secret.Data[key] = []byte(value)
		}
		return controllerutil.SetControllerReference(settings, secret, r.secrets.Scheme())
	})
	if err == nil && result != controllerutil.OperationResultNone {
		ctrl.LoggerFrom(ctx).Info("Wrote Secret", "result", result)
	}
	return ctrl.Result{}, err
}

// addController adds the reconciler to the manager. secrets selects where the controller reads Secrets.
func addController(manager ctrl.Manager, secrets string, namespaces map[string]cache.Config) error {
	controller := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{})
	reconciler := &reconciler{configMaps: manager.GetClient(), secrets: manager.GetClient()}
	switch secrets {
	case "read":
		// run excludes Secrets from the manager's cache, so the manager's client gets them from the API server.
	case "owned":
		controller = controller.Owns(&corev1.Secret{})
	case "cluster":
		direct, err := newCluster(manager, namespaces)
		if err != nil {
			return err
		}
		owners := handler.TypedEnqueueRequestForOwner[*corev1.Secret](
			manager.GetScheme(), manager.GetRESTMapper(), &corev1.ConfigMap{}, handler.OnlyControllerOwner())
		controller = controller.WatchesRawSource(source.Kind(direct.GetCache(), &corev1.Secret{}, owners))
		reconciler.secrets = direct.GetClient()
	default:
		return fmt.Errorf("-secrets=%s: want read, owned or cluster", secrets)
	}
	return controller.Complete(reconciler)
}
