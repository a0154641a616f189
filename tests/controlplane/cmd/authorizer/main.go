// Command authorizer decides requests with the API server's RBAC authorizer. Each line of standard input is a world in
// JSON: roles, bindings and requests. For each world, the command prints a line with one digit for each request: 1 for
// Allow, 0 for NoOpinion.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

type world struct {
	Roles               []*rbacv1.Role               `json:"roles"`
	RoleBindings        []*rbacv1.RoleBinding        `json:"roleBindings"`
	ClusterRoles        []*rbacv1.ClusterRole        `json:"clusterRoles"`
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding `json:"clusterRoleBindings"`
	Requests            []request                    `json:"requests"`
}

type request struct {
	User   string                                      `json:"user"`
	Groups []string                                    `json:"groups"`
	Access authorizationv1.SelfSubjectAccessReviewSpec `json:"access"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "authorizer:", err)
		os.Exit(1)
	}
}

func run() error {
	worlds := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	for {
		var world world
		if err := worlds.Decode(&world); errors.Is(err, io.EOF) {
			return out.Flush()
		} else if err != nil {
			return err
		}
		line, err := world.decide()
		if err != nil {
			return err
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
}

func (w *world) decide() ([]byte, error) {
	rules, err := w.authorizer()
	if err != nil {
		return nil, err
	}
	line := make([]byte, 0, len(w.Requests)+1)
	for _, request := range w.Requests {
		// An error only reports missing roles, which grant nothing.
		decision, _, _ := rules.Authorize(context.Background(), request.attributes())
		switch decision {
		case authorizer.DecisionAllow:
			line = append(line, '1')
		case authorizer.DecisionNoOpinion:
			line = append(line, '0')
		default:
			return nil, fmt.Errorf("unexpected decision %v", decision)
		}
	}
	return line, nil
}

// authorizer returns the authorizer as kube-apiserver creates it: it reads from the listers of informers.
func (w *world) authorizer() (*rbac.RBACAuthorizer, error) {
	roles, err := index(w.Roles)
	if err != nil {
		return nil, err
	}
	roleBindings, err := index(w.RoleBindings)
	if err != nil {
		return nil, err
	}
	clusterRoles, err := index(w.ClusterRoles)
	if err != nil {
		return nil, err
	}
	clusterRoleBindings, err := index(w.ClusterRoleBindings)
	if err != nil {
		return nil, err
	}
	return rbac.New(
		&rbac.RoleGetter{Lister: rbaclisters.NewRoleLister(roles)},
		&rbac.RoleBindingLister{Lister: rbaclisters.NewRoleBindingLister(roleBindings)},
		&rbac.ClusterRoleGetter{Lister: rbaclisters.NewClusterRoleLister(clusterRoles)},
		&rbac.ClusterRoleBindingLister{Lister: rbaclisters.NewClusterRoleBindingLister(clusterRoleBindings)},
	), nil
}

func index[T any](objects []T) (cache.Indexer, error) {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	for _, object := range objects {
		if err := indexer.Add(object); err != nil {
			return nil, err
		}
	}
	return indexer, nil
}

// attributes returns what the API server passes to its authorizers for an access review.
func (r *request) attributes() authorizer.Attributes {
	user := &user.DefaultInfo{Name: r.User, Groups: r.Groups}
	if path := r.Access.NonResourceAttributes; path != nil {
		return authorizer.AttributesRecord{User: user, Verb: path.Verb, Path: path.Path}
	}
	resource := r.Access.ResourceAttributes
	return authorizer.AttributesRecord{
		User:            user,
		Verb:            resource.Verb,
		Namespace:       resource.Namespace,
		APIGroup:        resource.Group,
		APIVersion:      resource.Version,
		Resource:        resource.Resource,
		Subresource:     resource.Subresource,
		Name:            resource.Name,
		ResourceRequest: true,
	}
}
