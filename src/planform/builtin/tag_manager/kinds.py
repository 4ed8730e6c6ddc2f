"""Which managed resources have tags, for where no schema says so, as in `planform render`.

Facts about the schemas of the providers for AWS (v1.14.0, written by tools/tagged_kinds.py) and, for the kinds that are
used most, Azure. A control plane asks the schema that it serves, which knows every kind of every version.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final


def is_known_to_take_tags(group: str, kind: str) -> bool:
    """Whether a kind has `spec.forProvider.tags`; False of a kind that is not known."""
    for suffix, groups in _SUFFIXES.items():
        if group == suffix or group.endswith(f".{suffix}"):
            return (group.removesuffix(suffix).rstrip("."), kind) in _tagged(groups)
    return False


@cache
def _tagged(groups: str) -> frozenset[tuple[str, str]]:
    return frozenset(_read(groups))


def _read(groups: str) -> Iterator[tuple[str, str]]:
    group = ""
    for word in groups.split():
        if word.endswith(":"):
            group = "" if word == "azure:" else word[:-1]
        else:
            yield group, word


_AWS: Final = """
accessanalyzer: Analyzer
acm: Certificate
acmpca: CertificateAuthority
amp: Workspace
amplify: App Branch
apigateway: APIKey ClientCertificate DomainName RestAPI Stage UsagePlan VPCLink
apigatewayv2: API DomainName Stage VPCLink
appautoscaling: Target
appconfig: Application ConfigurationProfile Deployment DeploymentStrategy Environment Extension
appflow: Flow
appintegrations: EventIntegration
applicationinsights: Application
appmesh: GatewayRoute Mesh Route VirtualGateway VirtualNode VirtualRouter VirtualService
apprunner: AutoScalingConfigurationVersion Connection ObservabilityConfiguration Service VPCConnector
appstream: Fleet ImageBuilder Stack
appsync: GraphQLAPI
athena: DataCatalog Workgroup
backup: Framework Plan ReportPlan Vault
batch: JobDefinition SchedulingPolicy
budgets: Budget BudgetAction
ce: AnomalyMonitor
chime: VoiceConnector
cloud9: EnvironmentEC2
cloudformation: Stack StackSet
cloudfront: Distribution
cloudtrail: EventDataStore Trail
cloudwatch: CompositeAlarm MetricAlarm MetricStream
cloudwatchevents: Bus Rule
cloudwatchlogs: Destination Group
codeartifact: Domain Repository
codecommit: Repository
codeguruprofiler: ProfilingGroup
codepipeline: Codepipeline CustomActionType Webhook
codestarconnections: Connection
codestarnotifications: NotificationRule
cognitoidentity: Pool
cognitoidp: UserPool
configservice: ConfigRule ConfigurationAggregator
connect: ContactFlow ContactFlowModule HoursOfOperation PhoneNumber Queue QuickConnect RoutingProfile
  SecurityProfile User Vocabulary
dataexchange: DataSet Revision
datapipeline: Pipeline
datasync: LocationS3 Task
dax: Cluster
deploy: App DeploymentGroup
detective: Graph
devicefarm: DevicePool InstanceProfile NetworkProfile Project TestGridProject
directconnect: Connection HostedPrivateVirtualInterfaceAccepter HostedPublicVirtualInterfaceAccepter
  HostedTransitVirtualInterfaceAccepter Lag PrivateVirtualInterface PublicVirtualInterface TransitVirtualInterface
dlm: LifecyclePolicy
dms: Certificate Endpoint EventSubscription ReplicationInstance ReplicationSubnetGroup ReplicationTask S3Endpoint
docdb: Cluster ClusterInstance ClusterParameterGroup EventSubscription SubnetGroup
ds: Directory
dynamodb: Table TableReplica
ec2: AMI AMICopy CapacityReservation CarrierGateway CustomerGateway DefaultNetworkACL DefaultRouteTable
  DefaultSecurityGroup DefaultSubnet DefaultVPC DefaultVPCDHCPOptions EBSSnapshot EBSSnapshotCopy EBSSnapshotImport
  EBSVolume EIP EgressOnlyInternetGateway Fleet FlowLog Host Instance InternetGateway KeyPair LaunchTemplate
  ManagedPrefixList NATGateway NetworkACL NetworkInsightsAnalysis NetworkInsightsPath NetworkInterface
  PlacementGroup RouteTable SecurityGroup SecurityGroupEgressRule SecurityGroupIngressRule SpotFleetRequest
  SpotInstanceRequest Subnet TrafficMirrorFilter TransitGateway TransitGatewayConnect TransitGatewayConnectPeer
  TransitGatewayMulticastDomain TransitGatewayPeeringAttachment TransitGatewayPeeringAttachmentAccepter
  TransitGatewayPolicyTable TransitGatewayRouteTable TransitGatewayVPCAttachment TransitGatewayVPCAttachmentAccepter
  VPC VPCDHCPOptions VPCEndpoint VPCEndpointService VPCIpam VPCIpamPool VPCIpamScope VPCPeeringConnection
  VPCPeeringConnectionAccepter VPNConnection VPNGateway
ecr: Repository
ecrpublic: Repository
ecs: CapacityProvider Cluster Service TaskDefinition
efs: AccessPoint FileSystem
eks: AccessEntry Addon Cluster FargateProfile IdentityProviderConfig NodeGroup PodIdentityAssociation
elasticache: Cluster ParameterGroup ReplicationGroup ServerlessCache SubnetGroup User UserGroup
elasticbeanstalk: Application ApplicationVersion
elasticsearch: Domain
elb: ELB
elbv2: LB LBListener LBListenerRule LBTargetGroup LBTrustStore
emrserverless: Application
evidently: Feature Project Segment
firehose: DeliveryStream
fis: ExperimentTemplate
fsx: Backup DataRepositoryAssociation LustreFileSystem OntapFileSystem OntapStorageVirtualMachine WindowsFileSystem
gamelift: Alias Build Fleet GameSessionQueue Script
glacier: Vault
globalaccelerator: Accelerator
glue: CatalogDatabase Connection Crawler Job Registry Schema Trigger Workflow
grafana: Workspace
guardduty: Detector Filter
iam: InstanceProfile OpenIDConnectProvider Policy Role SAMLProvider ServerCertificate ServiceLinkedRole User
  VirtualMfaDevice
imagebuilder: Component ContainerRecipe DistributionConfiguration Image ImagePipeline ImageRecipe
  InfrastructureConfiguration
inspector: AssessmentTemplate ResourceGroup
iot: Policy ProvisioningTemplate RoleAlias ThingGroup ThingType TopicRule
ivs: Channel RecordingConfiguration
kafka: Cluster ServerlessCluster
kafkaconnect: Connector CustomPlugin WorkerConfiguration
kendra: DataSource Index QuerySuggestionsBlockList Thesaurus
keyspaces: Keyspace Table
kinesis: Stream
kinesisanalytics: Application
kinesisanalyticsv2: Application
kinesisvideo: Stream
kms: ExternalKey Key ReplicaExternalKey ReplicaKey
lambda: Function
licensemanager: LicenseConfiguration
lightsail: Bucket Certificate ContainerService Disk Instance KeyPair LB
location: GeofenceCollection PlaceIndex RouteCalculator Tracker
macie2: ClassificationJob CustomDataIdentifier FindingsFilter Member
mediaconvert: Queue
medialive: Channel Input InputSecurityGroup Multiplex
mediapackage: Channel
mediastore: Container
memorydb: ACL Cluster ParameterGroup Snapshot SubnetGroup User
mq: Broker Configuration
mwaa: Environment
neptune: Cluster ClusterEndpoint ClusterInstance ClusterParameterGroup EventSubscription ParameterGroup SubnetGroup
networkfirewall: Firewall FirewallPolicy RuleGroup
networkmanager: ConnectAttachment Connection CoreNetwork Device GlobalNetwork Link Site VPCAttachment
opensearch: Domain
opensearchserverless: Collection
opsworks: CustomLayer EcsClusterLayer GangliaLayer HAProxyLayer JavaAppLayer MemcachedLayer MySQLLayer
  NodeJSAppLayer PHPAppLayer RailsAppLayer Stack StaticWebLayer
organizations: Account OrganizationalUnit Policy
pinpoint: App
pipes: Pipe
qldb: Ledger Stream
ram: ResourceShare
rds: Cluster ClusterEndpoint ClusterInstance ClusterParameterGroup ClusterSnapshot DBSnapshotCopy EventSubscription
  Instance OptionGroup ParameterGroup Proxy ProxyEndpoint Snapshot SubnetGroup
redshift: Cluster EventSubscription HSMClientCertificate HSMConfiguration ParameterGroup SnapshotCopyGrant
  SnapshotSchedule SubnetGroup UsageLimit
redshiftserverless: RedshiftServerlessNamespace Workgroup
resourcegroups: Group
rolesanywhere: Profile
route53: HealthCheck Zone
route53recoveryreadiness: Cell ReadinessCheck RecoveryGroup ResourceSet
route53resolver: Endpoint Rule
rum: AppMonitor
s3: Bucket BucketObject Object ObjectCopy
s3control: StorageLensConfiguration
sagemaker: App AppImageConfig CodeRepository DeviceFleet Domain Endpoint EndpointConfiguration FeatureGroup Image
  Model ModelPackageGroup NotebookInstance Space StudioLifecycleConfig UserProfile Workteam
scheduler: ScheduleGroup
schemas: Discoverer Registry Schema
secretsmanager: Secret
serverlessrepo: CloudFormationStack
servicecatalog: Portfolio Product
servicediscovery: HTTPNamespace PrivateDNSNamespace PublicDNSNamespace Service
sesv2: ConfigurationSet DedicatedIPPool EmailIdentity
sfn: Activity StateMachine
signer: SigningProfile
sns: Topic
sqs: Queue
ssm: Activation Association Document MaintenanceWindow Parameter PatchBaseline
ssoadmin: PermissionSet
swf: Domain
timestreamwrite: Database Table
transcribe: LanguageModel Vocabulary VocabularyFilter
transfer: Connector Server User Workflow
waf: RateBasedRule Rule WebACL
wafregional: RateBasedRule Rule WebACL
wafv2: IPSet RegexPatternSet
workspaces: Directory IPGroup
xray: Group SamplingRule
"""
_AZURE: Final = """
azure: ResourceGroup
apimanagement: Management
appconfiguration: Configuration
automation: AutomationAccount
cache: RedisCache RedisEnterpriseCluster
cognitiveservices: Account
compute: AvailabilitySet Disk DiskEncryptionSet Image LinuxVirtualMachine LinuxVirtualMachineScaleSet ManagedDisk
  OrchestratedVirtualMachineScaleSet ProximityPlacementGroup SharedImage SharedImageGallery Snapshot
  WindowsVirtualMachine WindowsVirtualMachineScaleSet
containerregistry: Registry
containerservice: KubernetesCluster KubernetesClusterNodePool KubernetesFleetManager
cosmosdb: Account
databricks: Workspace
datafactory: Factory
dbformysql: FlexibleServer
dbforpostgresql: FlexibleServer Server
eventgrid: Domain SystemTopic Topic
eventhub: EventHubNamespace
insights: ActionGroup ApplicationInsights AutoscaleSetting MetricAlert
keyvault: Certificate Key Secret Vault
logic: AppWorkflow
managedidentity: UserAssignedIdentity
network: ApplicationGateway ApplicationSecurityGroup DDoSProtectionPlan DNSZone ExpressRouteCircuit Firewall
  FirewallPolicy IPGroup LoadBalancer LocalNetworkGateway NATGateway NetworkInterface PrivateDNSZone PrivateEndpoint
  PublicIP PublicIPPrefix RouteTable SecurityGroup TrafficManagerProfile VirtualHub VirtualNetwork
  VirtualNetworkGateway VirtualNetworkGatewayConnection VirtualWAN WebApplicationFirewallPolicy
notificationhubs: NotificationHub NotificationHubNamespace
operationalinsights: Workspace
recoveryservices: Vault
search: Service
servicebus: ServiceBusNamespace
sql: MSSQLDatabase MSSQLElasticPool MSSQLManagedInstance MSSQLServer
storage: Account
streamanalytics: Job
synapse: PrivateLinkHub SparkPool SQLPool Workspace
web: AppServiceManagedCertificate AppServicePlan FunctionApp FunctionAppFlexConsumption FunctionAppSlot
  LinuxFunctionApp LinuxFunctionAppSlot LinuxWebApp LinuxWebAppSlot ServicePlan StaticSite WindowsFunctionApp
  WindowsFunctionAppSlot WindowsWebApp WindowsWebAppSlot
"""
_SUFFIXES: Final = {
    "aws.upbound.io": _AWS,
    "aws.m.upbound.io": _AWS,
    "azure.upbound.io": _AZURE,
    "azure.m.upbound.io": _AZURE,
}
