-- The store of a yard as the first release with one wrote it: six jobs, of which one is held.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE blobs (
	hash TEXT NOT NULL, 
	body BLOB NOT NULL, 
	created_ms INTEGER NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "blobs" VALUES('1328dd5b3e3ff328854f0e03733b34960a43dfc6b1ef9278b95df710b1830a34',X'7B2261726776223A5B226563686F222C2268656C6C6F225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D70222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A307D',1794793858655);
INSERT INTO "blobs" VALUES('f1300481f7e128c20dd251b911b8f771963758c53794ceb1fd47597521c2a3de',X'7B2261726776223A5B227368222C222D63222C22657869742037225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D70222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A307D',1794793859366);
INSERT INTO "blobs" VALUES('97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b',X'7B2261726776223A5B2274727565225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D70222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A307D',1794793860097);
INSERT INTO "blobs" VALUES('6be5895e3eb147f6506586f76e4d4417e8c776055617b175b2a39011c2fc74ca',X'7B2261726776223A5B226563686F222C22776169746564225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D70222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A307D',1794793860902);
CREATE TABLE counters (
	id SMALLINT NOT NULL, 
	next_seq INTEGER NOT NULL, 
	next_job_id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "counters" VALUES(1,20,8,1);
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	at_ms INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	version SMALLINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1794793857088,1,'ConfigSet',1,'{"at_ms":1794793857088,"settings":{"version":1,"tenants":[{"path":"product","weight":1,"quota":{"guarantee":{},"limit":{},"borrow":{},"lend":{},"max_gpus_per_job":null,"max_gpus_per_user":null,"max_running_jobs":null},"budget":null},{"path":"research","weight":3,"quota":{"guarantee":{"total":2000},"limit":{},"borrow":{},"lend":{},"max_gpus_per_job":null,"max_gpus_per_user":null,"max_running_jobs":null},"budget":null}],"classes":[{"name":"urgent","priority":100,"preemptible":false,"limit_ms":3600000,"min_run_ms":300000,"grace_ms":30000},{"name":"batch","priority":0,"preemptible":true,"limit_ms":86400000,"min_run_ms":300000,"grace_ms":30000}],"default_class":"batch","gpu_models":[],"share_weights":{},"half_life_ms":604800000,"period_ms":300000,"earmark_ms":600000,"policy":{"name":"default","order":["class","fair"],"placement":"best-fit","backfill":"easy","backfill_depth":100,"depth_per_tenant":50,"preemption":["reclaim","class"],"quotas":true}}}');
INSERT INTO "events" VALUES(2,1794793857103,1,'NodeAdded',1,'{"at_ms":1794793857103,"node":{"name":"old-node","cluster":"box","pool":"local","gpu_model":"A100-80GB","gpus":4,"cpu_milli":2000,"memory_mib":24065,"nvlink_group_size":4,"numa_domains":1,"switch":"","rack":""}}');
INSERT INTO "events" VALUES(3,1794793858655,1,'JobSubmitted',1,'{"at_ms":1794793858655,"job":{"id":1,"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":2},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"done","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"1328dd5b3e3ff328854f0e03733b34960a43dfc6b1ef9278b95df710b1830a34","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793858655,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":0,"array_index":0}}');
INSERT INTO "events" VALUES(4,1794793858669,1,'AttemptStarted',1,'{"at_ms":1794793858669,"job_id":1,"attempt":1,"grants":[{"node":0,"gpus":3,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "events" VALUES(5,1794793858918,1,'AttemptEnded',1,'{"at_ms":1794793858918,"job_id":1,"attempt":1,"outcome":"COMPLETED","saved_ms":0,"exit_code":0,"why":"","ended_ms":1794793858901}');
INSERT INTO "events" VALUES(6,1794793859366,1,'JobSubmitted',1,'{"at_ms":1794793859366,"job":{"id":2,"spec":{"tenant":"product","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"failed","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"f1300481f7e128c20dd251b911b8f771963758c53794ceb1fd47597521c2a3de","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793859366,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":0,"array_index":0}}');
INSERT INTO "events" VALUES(7,1794793859370,1,'AttemptStarted',1,'{"at_ms":1794793859370,"job_id":2,"attempt":1,"grants":[{"node":0,"gpus":1,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "events" VALUES(8,1794793859433,1,'AttemptEnded',1,'{"at_ms":1794793859433,"job_id":2,"attempt":1,"outcome":"FAILED","saved_ms":0,"exit_code":7,"why":"exit code 7","ended_ms":1794793859420}');
INSERT INTO "events" VALUES(9,1794793860097,1,'JobSubmitted',1,'{"at_ms":1794793860097,"job":{"id":4,"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793860097,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":3,"array_index":0}}');
INSERT INTO "events" VALUES(10,1794793860097,1,'JobSubmitted',1,'{"at_ms":1794793860097,"job":{"id":5,"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793860097,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":3,"array_index":1}}');
INSERT INTO "events" VALUES(11,1794793860097,1,'JobSubmitted',1,'{"at_ms":1794793860097,"job":{"id":6,"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793860097,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":3,"array_index":2}}');
INSERT INTO "events" VALUES(12,1794793860109,1,'AttemptStarted',1,'{"at_ms":1794793860109,"job_id":4,"attempt":1,"grants":[{"node":0,"gpus":1,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "events" VALUES(13,1794793860109,1,'AttemptStarted',1,'{"at_ms":1794793860109,"job_id":5,"attempt":1,"grants":[{"node":0,"gpus":2,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "events" VALUES(14,1794793860109,1,'AttemptStarted',1,'{"at_ms":1794793860109,"job_id":6,"attempt":1,"grants":[{"node":0,"gpus":4,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "events" VALUES(15,1794793860210,1,'AttemptEnded',1,'{"at_ms":1794793860210,"job_id":4,"attempt":1,"outcome":"COMPLETED","saved_ms":0,"exit_code":0,"why":"","ended_ms":1794793860193}');
INSERT INTO "events" VALUES(16,1794793860210,1,'AttemptEnded',1,'{"at_ms":1794793860210,"job_id":5,"attempt":1,"outcome":"COMPLETED","saved_ms":0,"exit_code":0,"why":"","ended_ms":1794793860199}');
INSERT INTO "events" VALUES(17,1794793860210,1,'AttemptEnded',1,'{"at_ms":1794793860210,"job_id":6,"attempt":1,"outcome":"COMPLETED","saved_ms":0,"exit_code":0,"why":"","ended_ms":1794793860197}');
INSERT INTO "events" VALUES(18,1794793860902,1,'JobSubmitted',1,'{"at_ms":1794793860902,"job":{"id":7,"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"waits","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"6be5895e3eb147f6506586f76e4d4417e8c776055617b175b2a39011c2fc74ca","retries":0,"requeue":true,"after":[],"after_one":false},"submitted_ms":1794793860902,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":0,"array_index":0}}');
INSERT INTO "events" VALUES(19,1794793860902,1,'JobHeld',1,'{"at_ms":1794793860902,"job_id":7}');
CREATE TABLE history (
	id INTEGER NOT NULL, 
	array_id INTEGER NOT NULL, 
	array_index INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	user TEXT NOT NULL, 
	klass TEXT NOT NULL, 
	state TEXT NOT NULL, 
	gpus_milli INTEGER NOT NULL, 
	submitted_ms INTEGER NOT NULL, 
	started_ms INTEGER NOT NULL, 
	ended_ms INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	preemptions INTEGER NOT NULL, 
	exit_code INTEGER NOT NULL, 
	why TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "history" VALUES(1,0,0,'done','research','root','batch','COMPLETED',2000,1794793858655,1794793858669,1794793858901,1,0,0,'','{"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":2},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"done","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"1328dd5b3e3ff328854f0e03733b34960a43dfc6b1ef9278b95df710b1830a34","retries":0,"requeue":true,"after":[],"after_one":false},"limit_ms":86400000,"deadline_ms":0,"grants":[{"node":0,"gpus":3,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "history" VALUES(2,0,0,'failed','product','root','batch','FAILED',1000,1794793859366,1794793859370,1794793859420,1,0,7,'exit code 7','{"spec":{"tenant":"product","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"failed","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"f1300481f7e128c20dd251b911b8f771963758c53794ceb1fd47597521c2a3de","retries":0,"requeue":true,"after":[],"after_one":false},"limit_ms":86400000,"deadline_ms":0,"grants":[{"node":0,"gpus":1,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "history" VALUES(4,3,0,'sweep','research','root','batch','COMPLETED',1000,1794793860097,1794793860109,1794793860193,1,0,0,'','{"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"limit_ms":86400000,"deadline_ms":0,"grants":[{"node":0,"gpus":1,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "history" VALUES(5,3,1,'sweep','research','root','batch','COMPLETED',1000,1794793860097,1794793860109,1794793860199,1,0,0,'','{"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"limit_ms":86400000,"deadline_ms":0,"grants":[{"node":0,"gpus":2,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
INSERT INTO "history" VALUES(6,3,2,'sweep','research','root','batch','COMPLETED',1000,1794793860097,1794793860109,1794793860197,1,0,0,'','{"spec":{"tenant":"research","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0},"klass":"","name":"sweep","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"97594cb373e7521296feb7b035a61bbf822be6a4c694906dd2cbcfb6a54d816b","retries":0,"requeue":true,"after":[],"after_one":false},"limit_ms":86400000,"deadline_ms":0,"grants":[{"node":0,"gpus":4,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1}]}');
CREATE TABLE idempotency (
	owner TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	reply TEXT NOT NULL, 
	at_ms INTEGER NOT NULL, 
	PRIMARY KEY (owner, "key")
);
INSERT INTO "idempotency" VALUES('0','67925821d73e8abb35d7f35068400138','899c8d37aaac775ca9f858d651624858f31ef4688f99d6dd2039024326bcfad7','{"first_id":1,"ids":1,"seqs":[3],"reply":{"id":1,"label":"1","name":"done","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794793858655}}',1794793858655);
INSERT INTO "idempotency" VALUES('0','f0721ee2e74f2dc765dcbd686f431692','d077d5becd36dc434405928c6492bdd4b2e8035bf661499c0177dc8a4564ebcb','{"first_id":2,"ids":1,"seqs":[6],"reply":{"id":2,"label":"2","name":"failed","tenant":"product","user":"root","state":"PENDING","submitted_ms":1794793859366}}',1794793859366);
INSERT INTO "idempotency" VALUES('0','0325b3cd7412f91956e6ce491a91579b','25e9a301952097fac893a3b8c433cdb70fc479d8ddb55b4ae050c93d22553908','{"first_id":3,"ids":4,"seqs":[9,10,11],"reply":{"id":3,"label":"3","name":"sweep","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794793860097,"array":true,"tasks":3,"first_task_id":4}}',1794793860097);
INSERT INTO "idempotency" VALUES('0','d3350eaf89b5bfc782f5d6b8e8524867','42d9143704a275db7fb5ea53178ed88eaca4756c5eac27c6d142a6302c20ada2','{"first_id":7,"ids":1,"seqs":[18,19],"reply":{"id":7,"label":"7","name":"waits","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794793860902}}',1794793860902);
CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('code_version','0.1.0');
INSERT INTO "meta" VALUES('schema_version','0001');
INSERT INTO "meta" VALUES('yard','v2cqha2v');
CREATE TABLE snapshots (
	seq INTEGER NOT NULL, 
	made_ms INTEGER NOT NULL, 
	code_version TEXT NOT NULL, 
	checksum TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE INDEX events_at_ms ON events (at_ms, seq);
CREATE INDEX idempotency_at_ms ON idempotency (at_ms);
CREATE INDEX history_array ON history (array_id, array_index);
CREATE INDEX history_ended_ms ON history (ended_ms);
CREATE INDEX history_state ON history (state, id);
CREATE INDEX history_tenant ON history (tenant, id);
CREATE INDEX history_user ON history (user, id);
COMMIT;
