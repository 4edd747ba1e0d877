// Package cut takes the controller away from a broker that serves: a proxy
// stands on the controller's listener and is cut, or swallows everything. What
// needs the controller fails within one timeout and goes on when it is back;
// what does not need it does not notice.
package cut
