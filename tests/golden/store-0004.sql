-- The store of a yard that was updated while jobs ran: a snapshot at event 31, a log that was cut there, seven events after it.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE blobs (
	hash TEXT NOT NULL, 
	body BLOB NOT NULL, 
	created_ms INTEGER NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "blobs" VALUES('782914a394404335238b7237e379aa2c063122b0a0c7b4f3f68836886fe007da',X'76657273696F6E3A20310A636C7573746572733A207B626F783A207B677075733A2038207820413130302D383047422C20656D756C6174653A20747275652C20616C6C6F775F726F6F743A20747275657D7D0A74656E616E74733A0A202072657365617263683A207B7765696768743A20322C2067756172616E7465653A20347D0A20206E6C703A207B706172656E743A2072657365617263687D0A2020696E7465726E733A207B7765696768743A20312C206C696D69743A20357D0A636C61737365733A0A202062617463683A207B7072696F726974793A20302C20707265656D707469626C653A20747275652C206D696E5F72756E3A2031682C2067726163653A2032737D0A',1794830725182);
INSERT INTO "blobs" VALUES('9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed',X'7B2261726776223A5B2274727565225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D702F68352D67656E222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A302C226261746368223A66616C73652C2272616E6B73223A307D',1794830726648);
INSERT INTO "blobs" VALUES('7d71a947cc8df9c2cfcc6b8c1a8c36f19626c0154170aae516f16943ada92d00',X'7B2261726776223A5B227368222C222D63222C22657869742033225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D702F68352D67656E222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A302C226261746368223A66616C73652C2272616E6B73223A307D',1794830726896);
INSERT INTO "blobs" VALUES('4e739b7c666de1ee36813e9746de2100520ef2fbe11b5905cc7bcf2de1c7d977',X'7B2261726776223A5B22736C656570222C22363030225D2C22736372697074223A22222C22656E76223A7B7D2C22637764223A222F746D702F68352D67656E222C227374646F7574223A22222C22737464657272223A22222C22756964223A302C22676964223A302C2275736572223A22726F6F74222C227761726E5F7369676E616C223A302C227761726E5F6D73223A302C226261746368223A66616C73652C2272616E6B73223A307D',1794830727227);
CREATE TABLE configs (
	version INTEGER NOT NULL, 
	at_ms INTEGER NOT NULL, 
	"by" TEXT NOT NULL, 
	how TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	restores INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "configs" VALUES(1,1794830725182,'root','start','782914a394404335238b7237e379aa2c063122b0a0c7b4f3f68836886fe007da',0);
CREATE TABLE counters (
	id SMALLINT NOT NULL, 
	next_seq INTEGER NOT NULL, 
	next_job_id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "counters" VALUES(1,39,14,2);
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	at_ms INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	version SMALLINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(32,1794830745539,2,'Ticked',1,'{"at_ms":1794830745539}');
INSERT INTO "events" VALUES(33,1794830745539,2,'AttemptStarted',1,'{"at_ms":1794830745539,"job_id":2,"attempt":2,"grants":[{"node":0,"gpus":2,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":""}]}');
INSERT INTO "events" VALUES(34,1794830746212,2,'AttemptEnded',1,'{"at_ms":1794830746212,"job_id":2,"attempt":2,"outcome":"FAILED","saved_ms":0,"exit_code":3,"why":"exit code 3","ended_ms":1794830746191}');
INSERT INTO "events" VALUES(35,1794830749018,2,'JobSubmitted',1,'{"at_ms":1794830749018,"job":{"id":12,"spec":{"tenant":"interns","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"later","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"4e739b7c666de1ee36813e9746de2100520ef2fbe11b5905cc7bcf2de1c7d977","retries":0,"requeue":true,"after":[],"after_one":false,"origin":""},"submitted_ms":1794830749018,"limit_ms":3600000,"deadline_ms":0,"begin_ms":0,"array_id":0,"array_index":0}}');
INSERT INTO "events" VALUES(36,1794830749032,2,'AttemptStarted',1,'{"at_ms":1794830749032,"job_id":12,"attempt":1,"grants":[{"node":0,"gpus":2,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":""}]}');
INSERT INTO "events" VALUES(37,1794830749131,2,'AttemptConfirmed',1,'{"at_ms":1794830749131,"job_id":12,"attempt":1}');
INSERT INTO "events" VALUES(38,1794830749346,2,'JobSubmitted',1,'{"at_ms":1794830749346,"job":{"id":13,"spec":{"tenant":"interns","ask":{"gpus":{"kind":"whole","count":0},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"after","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[{"kind":"afterok","job_id":10,"delay_ms":0}],"after_one":false,"origin":""},"submitted_ms":1794830749346,"limit_ms":0,"deadline_ms":0,"begin_ms":0,"array_id":0,"array_index":0}}');
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
INSERT INTO "history" VALUES(1,0,0,'well','interns','root','batch','COMPLETED',1000,1794830726648,1794830726671,1794830726899,1,0,0,'','{"spec":{"tenant":"interns","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"well","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":1,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":""}]}');
INSERT INTO "history" VALUES(2,0,0,'failed','interns','root','batch','FAILED',1000,1794830726896,1794830745539,1794830746191,2,0,3,'exit code 3','{"spec":{"tenant":"interns","ask":{"gpus":{"kind":"whole","count":1},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"failed","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"7d71a947cc8df9c2cfcc6b8c1a8c36f19626c0154170aae516f16943ada92d00","retries":1,"requeue":true,"after":[],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":2,"milli":1000,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":""}]}');
INSERT INTO "history" VALUES(4,3,0,'array','research/nlp','root','batch','COMPLETED',250,1794830727046,1794830727053,1794830727133,1,0,0,'','{"spec":{"tenant":"research/nlp","ask":{"gpus":{"kind":"milli","count":1,"milli":250,"user":"root"},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"array","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":1,"milli":250,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":"root"}]}');
INSERT INTO "history" VALUES(5,3,1,'array','research/nlp','root','batch','COMPLETED',250,1794830727046,1794830727053,1794830727144,1,0,0,'','{"spec":{"tenant":"research/nlp","ask":{"gpus":{"kind":"milli","count":1,"milli":250,"user":"root"},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"array","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":1,"milli":250,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":"root"}]}');
INSERT INTO "history" VALUES(6,3,2,'array','research/nlp','root','batch','COMPLETED',250,1794830727046,1794830727145,1794830727184,1,0,0,'','{"spec":{"tenant":"research/nlp","ask":{"gpus":{"kind":"milli","count":1,"milli":250,"user":"root"},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"array","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[{"kind":"afterany","job_id":4,"delay_ms":0}],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":1,"milli":250,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":"root"}]}');
INSERT INTO "history" VALUES(7,3,3,'array','research/nlp','root','batch','COMPLETED',250,1794830727046,1794830727173,1794830727252,1,0,0,'','{"spec":{"tenant":"research/nlp","ask":{"gpus":{"kind":"milli","count":1,"milli":250,"user":"root"},"tasks":1,"cpu_milli":0,"memory_mib":0,"models":[],"pools":[],"nodes_max":0,"nodes_min":0,"on_nodes":[],"not_nodes":[],"features":[]},"klass":"","name":"array","work":null,"checkpoint_ms":0,"restart_cost_ms":0,"user":"root","recipe":"9becdaae26fb7b1dacb439459f09ade24d12a3c7dd9b9a1dd09eedc487c047ed","retries":0,"requeue":true,"after":[{"kind":"afterany","job_id":5,"delay_ms":0}],"after_one":false,"origin":""},"limit_ms":315360000000,"deadline_ms":0,"begin_ms":0,"grants":[{"node":0,"gpus":1,"milli":250,"cpu_milli":0,"memory_mib":0,"tasks":1,"slices":[],"user":"root"}]}');
CREATE TABLE idempotency (
	owner TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	reply TEXT NOT NULL, 
	at_ms INTEGER NOT NULL, 
	PRIMARY KEY (owner, "key")
);
INSERT INTO "idempotency" VALUES('0','0b0c4ac8678b6c16b69ac5cb98c06ee7','09aa0ee1912ef2d1c7a80fb8bcef275eea4429ca558aa53b6d64c8250f30185e','{"first_id":1,"ids":1,"seqs":[3],"reply":{"id":1,"label":"1","name":"well","tenant":"interns","user":"root","state":"PENDING","submitted_ms":1794830726648}}',1794830726648);
INSERT INTO "idempotency" VALUES('0','563748f1935e9bddf0ce3cf123643c33','1c0848365e91a6a2451d524ba35100aa39c3f1aa042fc1ada8f46029bcd2fca6','{"first_id":2,"ids":1,"seqs":[5],"reply":{"id":2,"label":"2","name":"failed","tenant":"interns","user":"root","state":"PENDING","submitted_ms":1794830726896}}',1794830726896);
INSERT INTO "idempotency" VALUES('0','8adfd4e931f0106dd898609a0c51547a','61efd9c5001126e320777b82c1f3dd7cbd8caddef6b2a8e651006800e57dedb0','{"first_id":3,"ids":5,"seqs":[9,10,11,12],"reply":{"id":3,"label":"3","name":"array","tenant":"research/nlp","user":"root","state":"PENDING","submitted_ms":1794830727046,"array":true,"tasks":4,"first_task_id":4}}',1794830727046);
INSERT INTO "idempotency" VALUES('0','c24b0e00ae0aa0660b7ea6fc077e80aa','fb5faa425fc04b5d018634774f10075de9175ea1b99d1487a2093223411a5f11','{"first_id":8,"ids":1,"seqs":[21],"reply":{"id":8,"label":"8","name":"slice","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794830727227}}',1794830727227);
INSERT INTO "idempotency" VALUES('0','a034018e454577f7143b25b41cf53dc9','85d2d1678fd51a00935e2e8927fbb98c8ca50c6896cacdafdcf932a3aa2efc0f','{"first_id":9,"ids":1,"seqs":[26],"reply":{"id":9,"label":"9","name":"share","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794830727745}}',1794830727745);
INSERT INTO "idempotency" VALUES('0','a647839698917c717d1f128ba87fd8e8','4ef6615516546d8d17c8370b970fcc3fa7f26449434787e936816c96074451c3','{"first_id":10,"ids":1,"seqs":[29],"reply":{"id":10,"label":"10","name":"waits","tenant":"research","user":"root","state":"PENDING","submitted_ms":1794830732345}}',1794830732345);
INSERT INTO "idempotency" VALUES('0','29308b171e6c0315c7d5c23167c715b1','c2d5ac0bdcc0b6a5d1e438c6da5d3231ee660a24dc96de170f10b180aec5fac0','{"first_id":11,"ids":1,"seqs":[30,31],"reply":{"id":11,"label":"11","name":"held","tenant":"interns","user":"root","state":"PENDING","submitted_ms":1794830732557}}',1794830732557);
INSERT INTO "idempotency" VALUES('0','bea38feec7fd95dfa13e13fe0218804e','fd43f79ba926d3f2b61d3bab9824c9df6956fe46eb7664bd8157686f6f2202f4','{"first_id":12,"ids":1,"seqs":[35],"reply":{"id":12,"label":"12","name":"later","tenant":"interns","user":"root","state":"PENDING","submitted_ms":1794830749018}}',1794830749018);
INSERT INTO "idempotency" VALUES('0','bbaab0560386e4c88374b8381dfb4115','4fd7c161ef1fc0f6faec5a28dffa80afc5a6cbcb43547aca0ed418d441e1de17','{"first_id":13,"ids":1,"seqs":[38],"reply":{"id":13,"label":"13","name":"after","tenant":"interns","user":"root","state":"PENDING","submitted_ms":1794830749346}}',1794830749346);
CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('code_version','0.1.0');
INSERT INTO "meta" VALUES('schema_version','0004');
INSERT INTO "meta" VALUES('yard','sobq3yw5');
CREATE TABLE snapshots (
	seq INTEGER NOT NULL, 
	made_ms INTEGER NOT NULL, 
	code_version TEXT NOT NULL, 
	checksum TEXT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "snapshots" VALUES(31,1794830738112,'0.1.0','bce936a2b44a942f27fb3d00620bb381a60ea0f761cb8fb39439ab1467a0bcf1',X'7801E559DB6EDC3610FD173E3B8DEE5AED5BDB044181D60D8AF6C930048AA276554BA24249765CC3FFDE33A4B42BAFE5DCEC246BC42F16296A389C397366867BC32EA5EE4AD5B0B57BC21A7595D61D1EE32458F94EEC7B61189FB08A777DFAAFCAD232C73BACEB64DF97CD062B6FEE7CDFCB86373DA6CF6E58CBFB2D5BB3B2E9A56E3A76C2AE64B9D9F6669F7783EA397DBC19B8C6175262708B8DCABAC48A1BD6E37DC5D6A1E33898CE94D6EA6A5C221B28418B6BFE3EDDB44397B65293766CDD0C5575303F7452CF5FE8A169A039AD879AF401C91FF28DC4BE76B8535DCB4E722DB633DDBD13B6A8FBA47060159ECEF1FD757FD954ED4C7FF86E517F28FABD743E3F610200EBA4854DC36B808165BC37866F75A974D95FB3B573C25A2D65DDF665566149AF07396A6D30EBBBA11FC1FCF40710944D0A5FDB3776FA846D3417D24C7958748B9D7359F0A1EA53A3C16C5BE02AAD552E2B520AEBBA2DD732B508C614C10F9A09D2999EB7BC2AD2AA2CACF0C80956A31A8066A972ABC5380548D55C5F98B949B1ABADAAA401B33967DD76290117D2996A24FCD7AAAA1430C20D1BED332A8E574AE704F1336B454C14BCD40C3AB7154E5BCB06C046308A0BBCCAF0AF282B441693BCBB9ECDA4B96C295E5D329E79366165039A02716F7DE28A33A6256C56D610616D870D0DB2A03379E61656D91990FD0CB12F56CE9B5F48AF0676C52A50043DCDCE7469A50D1D18837CA1DE437AAB14A95B290142800B27C7606E2FD5CC43E60ADAD0021CB1646B7232B490B5D2D798034178811385D0E0B22A9B8B74A3D5D0A65DF91F94C097CD50F33457352F4157C486DD5549205C33EC0BE45CD8A742F27E0035103070C85C5DC11EB444C013F016D8894685D2E03B321574A0639739A1D620C76C70734B001C01D2F55CF7061213F58E68596054081F3ABE813048E642C0DAD8F34598047112AD22106DD940AB742F13EBBA1640B08631DB8056773CB7A7E805B9AE1324AB2F913A63CF05B12F2227F4923006A17EAEBA93E091DA168407AE133AFE2324BF78C0C6919380E16340E8D3948683617861D13EC5D22C25F20EA042164416A3FF17701CD063D8C0006AA0E07581B21E2B2D2867F83E00370D6794458163403A465C8A7C692063E20F500036F1896AD22920A16DA3FAF9F000EB17C4D316DE230D816B2AA00FF6501A47B109586CA5B868156065A186E891168C42A190A002031BDBCCCCB4523DBE079D942D20CDE23C7639A02CC42A2F12E1894288285B0997AF841F156E12799170DC307063877319BA988B92C0E7394FBCDC718CAC5E9714A088612DDF0D7280609B2E7861B88528DD3CA644AFEB82571D720912CD86ACC21805C7CE5D13DE2079D95F75B9C13BA1ACB788281548960EE36E7E729D4D067947EBC10E898532CC93393090B19F64B188A22897AE947EB4727D99C401861EF240E839B2F08A4CBA6E16264E28449C89C2C35A11E7491CCF1D08987C1B0752BE98BB70CC20A83FEF02F5981D4925CA0FEEC803E65C1DB1BBAE788946E909E32EC9A4C8C1885E546471E6E65C64819F046152380947E805B9EB711F31962759C2DD3C7712297311AC62E104B121712D47E27C9AB8DBD715CBBC79E02DEF88BDB595D59366B9E370D6F909B37D306A716AED518C51B962D2733764E8C57B699B97A92AF5A255820A13FEC40BD3314EE93C973C47556D3B20E02793C8A5D34BAE35BF36B70778330E9A5CDA7AA492BC40AEDCA3652FF76E4F871AA2A7ACFAF6F5E9ABDF4EDF20788C5BA6F48D96486A4DB5F098EBA13DBA455306B45BDEE1535B9FA00DB4971438BFA998CC81B5110EFD4CA9329E1B43DC374CC7B85FD8740315D6F97E75C72FF783A95F55D4504094E0287A262DD020D85B0BBCA032CAF6142859A806CB24F50F66DFC9F47E84E408BEA0EB129CD11E8536C77506F522D48AA89A5E51FB317699761D9533E45F3439D6BFD4DC2CFB37F63C6CF235FC3B95512FA9B8FE988BFFFAE7F4F4832E1E4B367EDFC76CFFEDCED153AB0953DB5ADBF5608B31C9BB0170FFC1B27A5F7D9B6A09CE44C040105BC356F7ABBD11426C1D518737D6B98C9E0FD11624D0688EB7C9D95EECF9D06AC29EE7BA8E9B38F138FD0D7008BD0E708899C7602F99B04724F300F6E2009DD521F6626AE3EDADC42319E60104EE3698F8650FA007F8E5B1E0DB41CFD4979F0BBD3DA64CEFB4842B377661C96560C5213AE30958166F71E2C566FA3902CBA51032590BE75A4696EFF94BC81AAF0BE9BEEBEB206BB7C184AC8F66AE4364E16CCF26753D3965985F1A8C6783873D6B7EA038E40CA8F2689F7E793D62CB8F07CB911FD3A7602D900EA5CE33541FBFFEF9C7DBDF5FFFFDFA156E46CFE0DD3B6350D79D310ACE3B6324DDD91882735973BA39334590794E77BF6AC1DA28384B5465B4F5B3B96BF360977BCADA8265E19EC2A3FBF9F985DAED915C3805CBC7782EF765EEB2FACFEDB668F11807DDF7D1DC957C8AB2477355E09E9FDFFE0F68AD18AC');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	user TEXT NOT NULL, 
	role TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	note TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	made_with TEXT NOT NULL, 
	created_ms INTEGER NOT NULL, 
	expires_ms INTEGER NOT NULL, 
	used_ms INTEGER NOT NULL, 
	revoked_ms INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE tries (
	job_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	started_ms INTEGER NOT NULL, 
	ended_ms INTEGER NOT NULL, 
	outcome TEXT NOT NULL, 
	exit_code INTEGER NOT NULL, 
	why TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (job_id, attempt)
);
INSERT INTO "tries" VALUES(2,1,1794830726902,1794830726963,'FAILED',3,'exit code 3','{"nodes":["vm"],"gpu_indices":[[0]]}');
CREATE INDEX events_at_ms ON events (at_ms, seq);
CREATE INDEX idempotency_at_ms ON idempotency (at_ms);
CREATE INDEX history_array ON history (array_id, array_index);
CREATE INDEX history_ended_ms ON history (ended_ms);
CREATE INDEX history_state ON history (state, id);
CREATE INDEX history_tenant ON history (tenant, id);
CREATE INDEX history_user ON history (user, id);
CREATE INDEX tokens_made_with ON tokens (made_with);
CREATE INDEX tokens_user ON tokens (user);
COMMIT;
