-- The process of the client that makes a call: namespace, process id and start time.

ALTER TABLE calls ADD COLUMN process TEXT;
