package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/varve-io/varve/objstore"
)

// kinds maps the error codes of S3 and of the stores that follow it.
var kinds = map[string]error{
	"NoSuchKey":                          objstore.ErrNotExist,
	"NotFound":                           objstore.ErrNotExist, // HEAD
	"NoSuchBucket":                       objstore.ErrNoBucket,
	"PreconditionFailed":                 objstore.ErrExist,
	"InvalidAccessKeyId":                 objstore.ErrAuth,
	"SignatureDoesNotMatch":              objstore.ErrAuth,
	"ExpiredToken":                       objstore.ErrAuth,
	"ExpiredTokenException":              objstore.ErrAuth,
	"TokenRefreshRequired":               objstore.ErrAuth,
	"InvalidToken":                       objstore.ErrAuth,
	"InvalidSecurity":                    objstore.ErrAuth,
	"AccessDenied":                       objstore.ErrDenied,
	"AllAccessDisabled":                  objstore.ErrDenied,
	"AccountProblem":                     objstore.ErrDenied,
	"MethodNotAllowed":                   objstore.ErrDenied, // an object lock, or a read-only gateway
	"AuthorizationHeaderMalformed":       objstore.ErrRegion, // "the region is wrong, expecting ..."
	"PermanentRedirect":                  objstore.ErrRegion,
	"TemporaryRedirect":                  objstore.ErrRegion,
	"IllegalLocationConstraintException": objstore.ErrRegion,
	"RequestTimeTooSkewed":               objstore.ErrClockSkew,
	"RequestExpired":                     objstore.ErrClockSkew,
	"SlowDown":                           objstore.ErrThrottled,
	"SlowDownRead":                       objstore.ErrThrottled,
	"SlowDownWrite":                      objstore.ErrThrottled,
	"Throttling":                         objstore.ErrThrottled,
	"ThrottlingException":                objstore.ErrThrottled,
	"RequestLimitExceeded":               objstore.ErrThrottled,
	"TooManyRequests":                    objstore.ErrThrottled,
	"ServiceUnavailable":                 objstore.ErrThrottled,
	"BadDigest":                          objstore.ErrChecksum,
	"InvalidDigest":                      objstore.ErrChecksum,
	"XAmzContentSHA256Mismatch":          objstore.ErrChecksum,
	"XAmzContentChecksumMismatch":        objstore.ErrChecksum,
	"ChecksumMismatch":                   objstore.ErrChecksum,
	"InternalError":                      objstore.ErrUnavailable,
	"RequestTimeout":                     objstore.ErrUnavailable, // the store waited for our bytes
	"IncompleteBody":                     objstore.ErrUnavailable,
	"OperationAborted":                   objstore.ErrUnavailable,
	"ConditionalRequestConflict":         objstore.ErrUnavailable,
	"KeyTooLongError":                    objstore.ErrBadName,
	"InvalidObjectName":                  objstore.ErrBadName,
	"XMinioInvalidObjectName":            objstore.ErrBadName,
	"XMinioServerNotInitialized":         objstore.ErrUnavailable,
	"XMinioStorageFull":                  objstore.ErrUnavailable,
}

// cause is what a store or the network answered, flattened to text without headers: the SDK's errors
// may quote what was signed, and wrap context and io errors that mean something else to our callers.
type cause struct {
	status int    // of HTTP, 0 = no answer
	code   string // of S3, "" = none
	text   string
}

func (c *cause) Error() string { return c.text }

// localError is what was found here, not told by the store. It is not flattened.
type localError struct{ kind, err error }

func (e *localError) Error() string { return fmt.Sprint(e.err) }

// wrap makes an objstore.Error of what a request of ctx ended with; nil stays nil, and one that is made
// already stays as it is.
func wrap(ctx context.Context, op, name string, err error) error {
	var done *objstore.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &objstore.Error{Op: op, Name: name}
	var local *localError
	switch {
	case ctx.Err() != nil: // the caller gave up, whatever broke because of it
		e.Err = context.Cause(ctx)
	case errors.As(err, &local):
		e.Kind, e.Err = local.kind, local.err
	default:
		c, kind := classify(err)
		e.Kind, e.Err = kind, c
	}
	return e
}

func classify(err error) (*cause, error) {
	var creds *credentialError
	var resp *awshttp.ResponseError
	var api smithy.APIError
	switch {
	case errors.As(err, &creds):
		return &cause{text: creds.Error()}, objstore.ErrAuth
	case errors.As(err, &resp) && resp.HTTPStatusCode() != 0:
		c := causeOf(err, resp)
		return c, kindOf(c.code, c.status)
	case errors.As(err, &api): // an error without an HTTP response of its own
		c := &cause{code: api.ErrorCode(), text: api.ErrorCode() + ": " + api.ErrorMessage()}
		return c, kindOf(c.code, 0)
	}
	return classifyNetwork(err)
}

func causeOf(err error, resp *awshttp.ResponseError) *cause {
	c := &cause{status: resp.HTTPStatusCode(), text: fmt.Sprintf("HTTP %d", resp.HTTPStatusCode())}
	var api smithy.APIError
	if errors.As(err, &api) {
		c.code = api.ErrorCode()
		c.text += fmt.Sprintf(" %s: %s", c.code, api.ErrorMessage())
	} else if c.status < 300 {
		c.text += " with an answer that made no sense"
	}
	if minio := resp.Response.Header.Get("X-Minio-Error-Code"); minio != "" && kinds[c.code] == nil {
		c.code = minio // HEAD has no body to tell
	}
	if region := resp.Response.Header.Get("X-Amz-Bucket-Region"); region != "" && kindOf(c.code, c.status) == objstore.ErrRegion {
		c.text += " (the bucket is in " + region + ")"
	}
	if id := resp.ServiceRequestID(); id != "" {
		c.text += " (request " + id + ")"
	}
	return c
}

// kindOf prefers the code to the status; either may be missing.
func kindOf(code string, status int) error {
	if kind := kinds[code]; kind != nil {
		return kind
	}
	switch {
	case code == noSuchUpload: // not to be tried again as it is
		return nil
	case status == http.StatusNotFound:
		return objstore.ErrNotExist
	case status == http.StatusPreconditionFailed:
		return objstore.ErrExist
	case status == http.StatusUnauthorized:
		return objstore.ErrAuth
	case status == http.StatusForbidden:
		return objstore.ErrDenied
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect:
		return objstore.ErrRegion
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return objstore.ErrThrottled // also without a body, as HEAD answers
	case status == http.StatusNotImplemented:
		return nil
	case status == http.StatusConflict, status == http.StatusRequestTimeout, status >= 500:
		return objstore.ErrUnavailable
	case status >= 200 && status < 300: // an answer that made no sense
		return objstore.ErrUnavailable
	}
	return nil
}

// pastEnd reports whether err says that a range begins at or after the object's end.
func pastEnd(err error) bool {
	var resp *awshttp.ResponseError
	return errors.As(err, &resp) && resp.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable
}

// code is the S3 error code of err, "" if it has none.
func code(err error) string {
	var c *cause
	var api smithy.APIError
	switch {
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return ""
}

// classifyNetwork is for requests that got no answer, or half of one.
func classifyNetwork(err error) (*cause, error) {
	c := &cause{text: innermost(err)}
	var dns *net.DNSError
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	var connection interface{ ConnectionError() bool }
	var decode *smithy.DeserializationError
	switch {
	case errors.As(err, &dns):
		c.text = dns.Error()
		return c, objstore.ErrResolve
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return c, objstore.ErrTimeout
	case errors.Is(err, io.ErrUnexpectedEOF):
		c.text = "the reply broke off"
		return c, objstore.ErrUnavailable
	case errors.As(err, &op):
		c.text = op.Error()
		return c, objstore.ErrUnreachable
	case errors.As(err, &connection) && connection.ConnectionError():
		return c, objstore.ErrUnreachable
	case errors.As(err, &decode):
		c.text = "the reply made no sense: " + c.text
		return c, objstore.ErrUnavailable
	}
	return c, nil
}

// innermost is the text of the last error of a chain: the cause without the SDK's layers.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
