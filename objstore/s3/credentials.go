package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// fileReread is how long keys read from files are used before the files are read again, so
// that rotated keys are picked up without a restart.
const fileReread = time.Minute

const maxKeyFile = 16 << 10 // bytes; a session token has a few thousand

// FileCredentials reads the keys from files, each holding one value; token may be "". Errors name
// the files, never what is in them.
func FileCredentials(accessKey, secretKey, token string) aws.CredentialsProvider {
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		c := aws.Credentials{Source: "files", CanExpire: true, Expires: time.Now().Add(fileReread)}
		var errs [3]error
		c.AccessKeyID, errs[0] = readKey(accessKey)
		c.SecretAccessKey, errs[1] = readKey(secretKey)
		if token != "" {
			c.SessionToken, errs[2] = readKey(token)
		}
		if err := errors.Join(errs[:]...); err != nil {
			return aws.Credentials{}, err
		}
		return c, nil
	}))
}

func readKey(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("read key file: %w", err)
	}
	if !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeNamedPipe || info.Size() > maxKeyFile {
		return "", fmt.Errorf("read key file: %s is not a small regular file", name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read key file: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" || strings.ContainsAny(key, " \t\r\n\x00") {
		return "", fmt.Errorf("read key file: %s does not hold one value on one line", name)
	}
	return key, nil
}

// credentialError tells credentials that could not be had from a request that failed.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return "no credentials: " + innermost(e.err) }

func (e *credentialError) Unwrap() error { return e.err }

// markCredentialErrors makes a provider's errors credentialErrors.
func markCredentialErrors(p aws.CredentialsProvider) aws.CredentialsProvider {
	if p == nil {
		return nil
	}
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		c, err := p.Retrieve(ctx)
		if err != nil { // also when it took too long: an instance role's service that is a black hole, not the bucket
			err = &credentialError{err}
		}
		return c, err
	})
}
