package objstore

import (
	"context"
	"errors"
)

// diagnoses hold, for every kind of failure that an operator can end, the cause in plain words
// and what to do. The first match counts.
var diagnoses = []struct {
	kind          error
	cause, remedy string
}{
	{ErrResolve, "the host name of the object store cannot be resolved",
		"check the spelling of varve.store.s3.endpoint (or of the region it is made from) and this host's DNS"},
	{ErrTimeout, "the object store does not answer: connections or requests vanish (a firewall, a route, a security group)",
		"check from this host that the endpoint's port is reachable, e.g. with curl, and that no firewall drops the packets"},
	{ErrUnreachable, "the object store refuses or breaks connections",
		"check that the store runs, the host, port and scheme (http or https) of varve.store.s3.endpoint, and that its certificate is trusted here (AWS_CA_BUNDLE names a private authority)"},
	{ErrAuth, "the object store does not accept the credentials (unknown access key, wrong secret key, expired token, or none found)",
		"check the key files named by varve.store.s3.access.key.file and .secret.key.file, or what the AWS default chain finds (environment, profile, instance role)"},
	{ErrClockSkew, "the clock of this host differs too much from the object store's, so that signatures are refused",
		"set the clock right (chrony, systemd-timesyncd); record timestamps and retention depend on it too"},
	{ErrRegion, "the bucket is in another region than requests are signed for",
		"set varve.store.s3.region to the region of the bucket"},
	{ErrNoBucket, "the bucket does not exist",
		"create the bucket, or correct the bucket name in varve.store.url; Varve does not create buckets"},
	{ErrDenied, "the credentials are valid but not allowed to do this",
		"grant s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload on the prefix and s3:ListBucket on the bucket; of a file:// store, let the user that Varve runs as write to the directory"},
	{ErrThrottled, "the object store asks to slow down",
		"nothing, requests are spaced out and tried again; if it lasts, ask for a higher request rate on this prefix"},
	{ErrChecksum, "bytes changed between this host and the object store",
		"look for a faulty proxy, network card or memory between the two; no such bytes are served or committed"},
	{ErrUnavailable, "the object store answers with errors of its own",
		"look at the store's health and logs; requests are tried again until it recovers"},
	{ErrNotExist, "an object that should be there is missing",
		"look for lifecycle rules or manual deletion in the bucket; restore the object from a version or a backup"},
	{ErrExist, "an object of that name exists already",
		"two writers use the same prefix: give each cluster a prefix of its own in varve.store.url"},
	{context.DeadlineExceeded, "the object store did not answer within the time given",
		"check the network between this host and the store, and the store's load"},
}

// Diagnose tells an operator what err of a Store means and what to do about it. Both are empty
// for nil; an error of no known kind is its own cause.
func Diagnose(err error) (cause, remedy string) {
	if err == nil {
		return "", ""
	}
	for _, d := range diagnoses {
		if errors.Is(err, d.kind) {
			return d.cause, d.remedy
		}
	}
	return err.Error(), "look up the error in the documentation of the object store"
}
