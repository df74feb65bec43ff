// The sink of webhooks.sh: it answers 204 to what it verifies, and ends with 0 after two messages.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';

const dir = process.argv[2];
const { Webhook } = createRequire(dir + '/')('standardwebhooks');
let verified = 0;
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (part) => { body += part; });
  request.on('end', () => {
    const secret = JSON.parse(readFileSync(dir + '/secret.json', 'utf8')).Policy.SigningSecret;
    try {
      new Webhook(secret).verify(body, request.headers);
    } catch (error) {
      console.error('not verified:', error.message, body);
      process.exit(1);
    }
    console.log('verified', request.headers['webhook-id'], body);
    response.statusCode = 204;
    response.end(() => { if (++verified === 2) process.exit(0); });
  });
});
server.listen(0, '127.0.0.1', () => writeFileSync(dir + '/sink', `http://127.0.0.1:${server.address().port}/`));
setTimeout(() => { console.error('no message came'); process.exit(1); }, 60000);
