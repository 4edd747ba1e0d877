// Package admin is a broker's HTTP face: what Kafka's protocol has no request
// for, and what load balancers, Prometheus and scripts ask.
//
//	GET /healthz                             200 while the process works
//	GET /readyz                              200 when clients are served, else 503 with a reason a line;
//	                                         with 200, too, what does not work stands a line each
//	GET /metrics                             Prometheus
//	GET /v1/tier/status[?topic=T]            TierStatus
//	GET /v1/tier/segments?topic=T[&partition=N][&limit=N][&after=NEXT]  Segments
//
// Errors of the JSON API are an Error with a status of 400 or above. There is
// no authentication: the listener belongs on a private address.
package admin
