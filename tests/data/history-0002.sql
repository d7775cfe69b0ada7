BEGIN TRANSACTION;
CREATE TABLE cbs_history_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT cbs_history_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "cbs_history_version" VALUES('0002');
CREATE TABLE cbs_packages (
	version_set INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	version TEXT NOT NULL, 
	PRIMARY KEY (version_set, name), 
	FOREIGN KEY(version_set) REFERENCES cbs_version_sets (id)
);
INSERT INTO "cbs_packages" VALUES(1,'jax','0.10.1');
CREATE TABLE cbs_results (
	id INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	series INTEGER NOT NULL, 
	version_set INTEGER NOT NULL, 
	time_us BIGINT NOT NULL, 
	run_id TEXT NOT NULL, 
	revision TEXT NOT NULL, 
	program TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	latency_ms DOUBLE, 
	latency_low_ms DOUBLE, 
	latency_high_ms DOUBLE, 
	processes INTEGER, 
	compile_ms DOUBLE, 
	warm_compile_ms DOUBLE, 
	host_memory_mb DOUBLE, 
	device_memory_mb DOUBLE, 
	error DOUBLE, 
	identity TEXT NOT NULL, 
	extra TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (content), 
	FOREIGN KEY(series) REFERENCES cbs_series (id), 
	FOREIGN KEY(version_set) REFERENCES cbs_version_sets (id)
);
INSERT INTO "cbs_results" VALUES(1,X'6002EDCED1B10835AA332509E8A065F3',1,1,1790821800000000,'run-0','abc','pppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp','ok','',1.0,0.99,1.01,3,100.0,20.0,300.0,NULL,1.0e-06,'','{"tags": ["x"]}');
CREATE TABLE cbs_series (
	id INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	source TEXT NOT NULL, 
	workload TEXT NOT NULL, 
	workload_digest TEXT NOT NULL, 
	benchmark TEXT NOT NULL, 
	framework TEXT NOT NULL, 
	level TEXT NOT NULL, 
	data_type TEXT NOT NULL, 
	batch_size INTEGER, 
	backend TEXT NOT NULL, 
	compiler TEXT NOT NULL, 
	options TEXT NOT NULL, 
	environment TEXT NOT NULL, 
	device TEXT NOT NULL, 
	machine TEXT NOT NULL, 
	threads INTEGER, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "cbs_series" VALUES(1,X'5E7A1459BBE7BB613990A3DD80AA0F9D','cbs','bert-tiny','w1','models/BERT','jax','framework_level','fp32',1,'jax_xla','xla','["fast"]','','host-cpu','A CPU',2);
CREATE TABLE cbs_version_sets (
	id INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	versions TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (digest)
);
INSERT INTO "cbs_version_sets" VALUES(1,X'6B6E8ADE3CF312DB7951F0EF129EA067','{"jax":"0.10.1"}');
CREATE INDEX cbs_series_workload ON cbs_series (workload);
CREATE INDEX cbs_series_benchmark ON cbs_series (benchmark);
CREATE INDEX cbs_packages_version ON cbs_packages (name, version);
CREATE INDEX cbs_results_trend ON cbs_results (series, time_us);
CREATE INDEX cbs_results_time ON cbs_results (time_us);
CREATE INDEX cbs_results_run ON cbs_results (run_id);
CREATE VIEW cbs_history AS
SELECT r.id, strftime('%Y-%m-%dT%H:%M:%SZ', r.time_us / 1000000, 'unixepoch') AS time, s.source, s.workload, s.workload_digest, s.benchmark, s.framework,
  s.level, s.data_type, s.batch_size, s.backend, s.compiler, s.options, s.environment, s.device,
  s.machine, s.threads, v.versions, r.run_id, r.revision, r.program, r.status, r.reason,
  r.latency_ms, r.latency_low_ms, r.latency_high_ms, r.processes, r.compile_ms, r.warm_compile_ms,
  r.host_memory_mb, r.device_memory_mb, r.error, r.extra
FROM cbs_results r
JOIN cbs_series s ON s.id = r.series
JOIN cbs_version_sets v ON v.id = r.version_set;
COMMIT;
